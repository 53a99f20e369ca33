#include "server/jobs/job_rows.hpp"

#include <boost/json/object.hpp>

namespace distilld {
namespace {

namespace json = boost::json;
using Metadata = std::map<std::string, std::string>;

Result<Metadata> metadata_from(const json::value& value) {
    Metadata metadata;
    if (!value.is_object()) {
        return invalid_input("it is no object");
    }
    for (const auto& member : value.get_object()) {
        if (!member.value().is_string()) {
            return invalid_input("a member is no text");
        }
        metadata[std::string(member.key())] = std::string(member.value().get_string());
    }
    return metadata;
}

/// Collects what cannot be read of a row.
class Damage {
  public:
    template <class T>
    T known(std::optional<T> value, T otherwise, const char* what, const std::string& text) {
        if (!value) {
            add(std::string("unknown ") + what + " '" + text + "'");
        }
        return value.value_or(otherwise);
    }
    template <class T>
    std::optional<T> read(Result<T> (*reader)(const json::value&), const std::string& text, const char* what) {
        auto value = stored_json(reader, text);
        if (!value) {
            add(std::string(what) + ": " + value.error().message);
            return std::nullopt;
        }
        return *std::move(value);
    }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    void add(const std::string& what) { text_ += (text_.empty() ? "" : "; ") + what; }
    std::string text_;
};

std::optional<double> real_of(const sqlite::Statement& row, int column) {
    return row.is_null(column) ? std::nullopt : std::optional(row.real(column));
}

void bind_reason(sqlite::Statement& statement, int index, const std::optional<api::StatusReason>& reason) {
    if (reason) {
        statement.bind(index, reason->code);
        statement.bind(index + 1, reason->message);
        statement.bind(index + 2, reason->since);
    } else {
        statement.bind_null(index);
        statement.bind_null(index + 1);
        statement.bind(index + 2, "");
    }
}

void bind_limit(sqlite::Statement& statement, int index, const std::optional<std::uint32_t>& limit) {
    if (limit) {
        statement.bind(index, std::int64_t{*limit});
    } else {
        statement.bind_null(index);
    }
}

}  // namespace

std::string is_unfinished() {
    std::string states;
    for (const auto& [name, state] : api::kJobStateNames) {
        if (!api::is_terminal(state)) {
            states += (states.empty() ? "'" : ", '") + std::string(name) + "'";
        }
    }
    return "jobs.state IN (" + states + ")";
}

std::string metadata_text(const Metadata& metadata) {
    json::object object;
    for (const auto& [name, text] : metadata) {
        object[name] = text;
    }
    return to_text(object);
}

void bind_real(sqlite::Statement& statement, int index, const std::optional<double>& number) {
    if (number) {
        statement.bind(index, *number);
    } else {
        statement.bind_null(index);
    }
}

StoredJob job_of(const sqlite::Statement& row) {
    StoredJob stored;
    Damage damage;
    auto& job = stored.job;
    job.id = row.text(0);
    job.kind = damage.known(api::job_kind_from_string(row.text(1)), api::JobKind::train, "kind", row.text(1));
    job.owner = row.text(2);
    job.metadata = damage.read(metadata_from, row.text(3), "metadata").value_or(Metadata{});
    job.name = row.text(4);
    job.output = row.text(5);
    job.state = damage.known(api::job_state_from_string(row.text(6)), api::JobState::failed, "state", row.text(6));
    job.cancel_requested = row.integer(7) != 0;
    stored.resume = row.integer(8) != 0;
    job.created_at = row.text(9);
    job.started_at = row.text(10);
    job.finished_at = row.text(11);
    if (!row.is_null(12)) {
        job.status_reason = api::StatusReason{row.text(12), row.text(13), row.text(18)};
    }
    job.weights_sha256 = row.text(14);
    stored.idempotency_key = row.text(15);
    if (!row.is_null(16)) {
        job.progress = damage.read(api::progress_from_json, row.text(16), "progress");
    }
    job.eval_loss = real_of(row, 17);
    job.exported_eval_loss = real_of(row, 19);
    job.dtype = row.text(20);
    job.eval_kl = real_of(row, 21);
    job.eval_top1_agreement = real_of(row, 22);
    stored.number = static_cast<std::uint64_t>(row.integer(23));
    job.priority = static_cast<std::int32_t>(row.integer(24));
    if (!row.is_null(25)) {
        job.max_concurrent = static_cast<std::uint32_t>(row.integer(25));
    }
    job.owner_id = row.text(26);
    if (!damage.text().empty()) {
        job.status_reason = {kDamagedReason, "the job's row in the store is damaged: " + damage.text()};
    }
    return stored;
}

void bind_new_job(sqlite::Statement& insert, const StoredJob& stored) {
    const auto& job = stored.job;
    insert.bind(1, job.id);
    insert.bind(2, api::to_string(job.kind));
    insert.bind(3, job.owner);
    insert.bind(4, metadata_text(job.metadata));
    insert.bind(5, job.name);
    insert.bind(6, job.output);
    insert.bind(7, api::to_string(job.state));
    insert.bind(8, std::int64_t{job.cancel_requested});
    insert.bind(9, std::int64_t{stored.resume});
    insert.bind(10, job.created_at);
    insert.bind(11, job.started_at);
    insert.bind(12, job.finished_at);
    bind_reason(insert, 13, job.status_reason);
    insert.bind(16, job.weights_sha256);
    if (stored.idempotency_key.empty()) {
        insert.bind_null(17);
    } else {
        insert.bind(17, stored.idempotency_key);
    }
    insert.bind(18, std::int64_t{job.priority});
    bind_limit(insert, 19, job.max_concurrent);
    insert.bind(20, job.owner_id);
}

void bind_state(sqlite::Statement& update, const StoredJob& stored) {
    const auto& job = stored.job;
    update.bind(1, job.id);
    update.bind(2, api::to_string(job.state));
    update.bind(3, std::int64_t{job.cancel_requested});
    update.bind(4, std::int64_t{stored.resume});
    update.bind(5, job.started_at);
    update.bind(6, job.finished_at);
    bind_reason(update, 7, job.status_reason);
    update.bind(10, job.weights_sha256);
    bind_real(update, 11, job.exported_eval_loss);
    update.bind(12, job.dtype);
    update.bind(13, std::int64_t{job.priority});
    bind_limit(update, 14, job.max_concurrent);
}

}  // namespace distilld
