-- Whoever writes a record writes its log: one statement less for each write.
CREATE TRIGGER holdfast_records_log_new AFTER INSERT ON holdfast_records
BEGIN
    INSERT INTO holdfast_record_changes (commit_id, record_id, changed_at)
    VALUES (new.commit_id, new.id, new.updated_at);
END;

CREATE TRIGGER holdfast_records_log_changed AFTER UPDATE OF updated_at ON holdfast_records
BEGIN
    INSERT INTO holdfast_record_changes (commit_id, record_id, changed_at)
    VALUES (new.commit_id, new.id, new.updated_at);
END;
