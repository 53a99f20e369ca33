#include "server/jobs/store/job_rows.hpp"

#include <boost/json/object.hpp>
#include <concepts>
#include <type_traits>

namespace distilld {
namespace {

namespace json = boost::json;
using Metadata = std::map<std::string, std::string>;
using sqlite::Statement;

Result<Metadata> metadata_from(const json::value& value) {
    Metadata metadata;
    if (!value.is_object()) {
        return invalid_input("it is not an object");
    }
    for (const auto& member : value.get_object()) {
        if (!member.value().is_string()) {
            return invalid_input("a member is not a text");
        }
        metadata[std::string(member.key())] = std::string(member.value().get_string());
    }
    return metadata;
}

/// Collects the parts of a row that cannot be read.
class Damage {
  public:
    void add(const std::string& what) { text_ += (text_.empty() ? "" : "; ") + what; }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    std::string text_;
};

/// A cell, and the handling of a value that cannot be read.
struct Cell {
    const Statement& row;
    int index;
    const char* name;
    Damage& damage;

    template <class T>
    void read_json(Result<T> (*reader)(const json::value&), auto& value) const {
        if (Result<T> read = stored_json(reader, row.text(index))) {
            value = *std::move(read);
        } else {
            damage.add(std::string(name) + ": " + read.error().message);
        }
    }
};

void put(Statement& statement, int index, const auto& value) {
    statement.bind(index, value);
}
void put(Statement& statement, int index, const Metadata& value) {
    statement.bind(index, metadata_text(value));
}
void put(Statement& statement, int index, const NamedEnum auto& value) {
    statement.bind(index, to_string(value));
}

void get(const Cell& cell, std::string& value) {
    value = cell.row.text(cell.index);
}
void get(const Cell& cell, Metadata& value) {
    cell.read_json(metadata_from, value);
}
void get(const Cell& cell, std::integral auto& value) {
    value = static_cast<std::remove_cvref_t<decltype(value)>>(cell.row.integer(cell.index));
}
template <NamedEnum Enum>
void get(const Cell& cell, Enum& value) {
    const std::string text = cell.row.text(cell.index);
    if (const auto known = enum_from_string<Enum>(text)) {
        value = *known;
    } else {
        cell.damage.add(std::string("unknown ") + cell.name + " '" + text + "'");
    }
}
template <class T>
void get(const Cell& cell, std::optional<T>& value) {
    value = cell.row.optional<T>(cell.index);
}

enum class Written { once, with_state, elsewhere };

struct Column {
    const char* name;
    Written written;
    void (*write)(Statement&, int, const StoredJob&);
    void (*read)(const Cell&, StoredJob&);
};

/// A member of api::Job or of StoredJob.
template <auto Member>
auto& member_of(auto& stored) {
    if constexpr (std::is_invocable_v<decltype(Member), decltype(stored)>) {
        return stored.*Member;
    } else {
        return stored.job.*Member;
    }
}

template <auto Member>
constexpr Column column(const char* name, Written written) {
    return {name, written,
            [](Statement& statement, int i, const StoredJob& job) { put(statement, i, member_of<Member>(job)); },
            [](const Cell& cell, StoredJob& job) { get(cell, member_of<Member>(job)); }};
}
template <auto Member>
constexpr Column column_of_another_table(const char* name) {
    return {name, Written::elsewhere, nullptr,
            [](const Cell& cell, StoredJob& job) { get(cell, member_of<Member>(job)); }};
}

/// A part of the state's reason, which exists if its code does.
template <auto Member>
constexpr Column column_of_the_reason(const char* name) {
    return {name, Written::with_state,
            [](Statement& statement, int i, const StoredJob& stored) {
                const auto& reason = stored.job.status_reason;
                if (reason || Member == &api::StatusReason::since) {
                    statement.bind(i, reason ? (*reason).*Member : "");
                } else {
                    statement.bind_null(i);
                }
            },
            [](const Cell& cell, StoredJob& stored) {
                auto& reason = stored.job.status_reason;
                if (Member == &api::StatusReason::code && !cell.row.is_null(cell.index)) {
                    reason.emplace();
                }
                if (reason) {
                    (*reason).*Member = cell.row.text(cell.index);
                }
            }};
}

// Keys of clients are found by an index over rows that have one.
void write_idempotency_key(Statement& statement, int index, const StoredJob& stored) {
    if (stored.idempotency_key.empty()) {
        statement.bind_null(index);
    } else {
        statement.bind(index, stored.idempotency_key);
    }
}

void read_progress(const Cell& cell, StoredJob& stored) {
    if (!cell.row.is_null(cell.index)) {
        cell.read_json(api::progress_from_json, stored.job.progress);
    }
}

using api::Job;
constexpr std::array kColumns{
    column<&Job::id>("id", Written::once),
    column<&Job::kind>("kind", Written::once),
    column<&Job::owner>("owner", Written::once),
    column<&Job::owner_id>("owner_id", Written::once),
    column<&Job::metadata>("metadata", Written::once),
    column<&Job::name>("name", Written::once),
    column<&Job::output>("output", Written::once),
    column<&Job::state>("state", Written::with_state),
    column<&Job::cancel_requested>("cancel_requested", Written::with_state),
    column<&StoredJob::resume>("resume", Written::with_state),
    column<&Job::created_at>("created_at", Written::once),
    column<&Job::started_at>("started_at", Written::with_state),
    column<&Job::finished_at>("finished_at", Written::with_state),
    column<&Job::attempt>("attempt", Written::with_state),
    column_of_the_reason<&api::StatusReason::code>("reason_code"),
    column_of_the_reason<&api::StatusReason::message>("reason_message"),
    column_of_the_reason<&api::StatusReason::since>("reason_since"),
    column<&Job::weights_sha256>("weights_sha256", Written::with_state),
    column<&Job::exported_eval_loss>("exported_eval_loss", Written::with_state),
    column<&Job::dtype>("dtype", Written::with_state),
    column<&Job::priority>("priority", Written::with_state),
    column<&Job::task>("task", Written::once),
    column<&Job::task_of>("task_of", Written::once),
    column<&Job::max_concurrent>("max_concurrent", Written::with_state),
    column<&StoredJob::attempt_token>("attempt_token", Written::with_state),
    column<&StoredJob::attempt_place>("attempt_place", Written::with_state),
    column<&StoredJob::attempt_received>("attempt_received", Written::with_state),
    Column{"idempotency_key", Written::once, write_idempotency_key,
           [](const Cell& cell, StoredJob& stored) { get(cell, stored.idempotency_key); }},
    column_of_another_table<&StoredJob::number>("number"),
    Column{"progress", Written::elsewhere, nullptr, read_progress},
    column_of_another_table<&Job::eval_loss>("eval_loss"),
    column_of_another_table<&Job::eval_kl>("eval_kl"),
    column_of_another_table<&Job::eval_top1_agreement>("eval_top1_agreement"),
    column_of_another_table<&Job::eval_acceptance_rate>("eval_acceptance_rate"),
};

/// The names of the columns that `passes` accepts, each through `spell`.
std::string list_of(auto passes, auto spell) {
    std::string list;
    for (const Column& column : kColumns) {
        if (passes(column)) {
            list += (list.empty() ? "" : ", ") + spell(column);
        }
    }
    return list;
}

void bind_columns(Statement& statement, const StoredJob& stored, auto passes) {
    int index = 0;
    for (const Column& column : kColumns) {
        if (passes(column)) {
            column.write(statement, ++index, stored);
        }
    }
}

std::string name(const Column& column) {
    return column.name;
}
bool is_in_jobs(const Column& column) {
    return column.written != Written::elsewhere;
}
/// The id, which identifies the row, comes first.
bool changes_with_the_state(const Column& column) {
    return column.written == Written::with_state || &column == kColumns.data();
}

}  // namespace

std::string select_jobs_text() {
    return "SELECT " + list_of([](const Column&) { return true; }, name) +
           " FROM jobs LEFT JOIN job_progress ON job_progress.job_id = jobs.id ";
}

std::string insert_job_text() {
    return "INSERT INTO jobs (" + list_of(is_in_jobs, name) + ") VALUES (" +
           list_of(is_in_jobs, [](const Column&) { return std::string("?"); }) + ")";
}

std::string update_job_text() {
    const auto assigned = [n = 0](const Column& column) mutable {
        return std::string(column.name) + " = ?" + std::to_string(++n);
    };
    return "UPDATE jobs SET " + list_of(changes_with_the_state, assigned) + " WHERE id = ?1";
}

std::string is_unfinished() {
    std::string states;
    for (const auto& [name, state] : kEnumNames<api::JobState>) {
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

StoredJob job_of(const Statement& row) {
    StoredJob stored;
    stored.job.state = api::JobState::failed;  // unless it can be read
    Damage damage;
    int index = 0;
    for (const Column& column : kColumns) {
        column.read(Cell{row, index++, column.name, damage}, stored);
    }
    if (!damage.text().empty()) {
        stored.job.status_reason = {kDamagedReason, "the job's row in the store is damaged: " + damage.text()};
    }
    return stored;
}

void bind_new_job(Statement& insert, const StoredJob& stored) {
    bind_columns(insert, stored, is_in_jobs);
}

void bind_state(Statement& update, const StoredJob& stored) {
    bind_columns(update, stored, changes_with_the_state);
}

}  // namespace distilld
