"""Large payloads in an object store, and a short text in the record that stands for them.

    claims = ClaimCheck("s3://bucket/payloads")
    store.records.set_field("jobs.7", "params_ref", claims.put(data))
    data = claims.get(store.records.get_field("jobs.7", "params_ref"))

An object is named by the SHA-256 of its content. So a put that is repeated after a crash gives
the same reference and stores nothing twice, two writers of one content cannot disagree, and what
is read is checked against its own name. A reference does not say where the object is: it stays
valid when the objects move, and it holds no credentials.
"""

from holdfast.claim_check.aio import AsyncClaimCheck, AsyncReader
from holdfast.claim_check.claims import ClaimCheck

__all__ = ["AsyncClaimCheck", "AsyncReader", "ClaimCheck"]
