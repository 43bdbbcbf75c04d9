"""Every spec there is: what a backend's test module imports."""

from holdfast.testing.conformance.archiver import *  # noqa: F403
from holdfast.testing.conformance.branches import *  # noqa: F403
from holdfast.testing.conformance.branches_merge import *  # noqa: F403
from holdfast.testing.conformance.branches_retention import *  # noqa: F403
from holdfast.testing.conformance.cells import *  # noqa: F403
from holdfast.testing.conformance.cells_history import *  # noqa: F403
from holdfast.testing.conformance.events import *  # noqa: F403
from holdfast.testing.conformance.events_feed import *  # noqa: F403
from holdfast.testing.conformance.events_files import *  # noqa: F403
from holdfast.testing.conformance.events_unreadable import *  # noqa: F403
from holdfast.testing.conformance.events_views import *  # noqa: F403
from holdfast.testing.conformance.projector import *  # noqa: F403
from holdfast.testing.conformance.records import *  # noqa: F403
from holdfast.testing.conformance.records_scan import *  # noqa: F403
from holdfast.testing.conformance.records_ttl import *  # noqa: F403
from holdfast.testing.conformance.records_watch import *  # noqa: F403
from holdfast.testing.conformance.search import *  # noqa: F403
from holdfast.testing.conformance.sessions import *  # noqa: F403
from holdfast.testing.conformance.store import *  # noqa: F403
from holdfast.testing.conformance.tasks import *  # noqa: F403
from holdfast.testing.conformance.transactions import *  # noqa: F403
from holdfast.testing.conformance.transport import *  # noqa: F403
from holdfast.testing.conformance.values import *  # noqa: F403
from holdfast.testing.conformance.watch import *  # noqa: F403
