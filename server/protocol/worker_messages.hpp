#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "base/error.hpp"
#include "base/files/file_rule.hpp"
#include "base/type_table.hpp"
#include "pipeline/core/event_fields.hpp"
#include "pipeline/core/ranks/rank_place.hpp"
#include "pipeline/core/worker_events.hpp"

/// Messages between distilld and distilld-worker.
namespace distilld {

struct JobSpec;

/// Incremented when the meaning of a message changes; both programs must have the same version. New events and fields
/// need no new version, because unknown ones are ignored.
inline constexpr std::uint32_t kWorkerProtocolVersion = 2;

/// The worker's first message.
struct HelloMessage {
    std::uint32_t version = kWorkerProtocolVersion;
    std::int64_t pid = 0;
};

/// The first message to a training worker.
struct WorkerStart {
    std::string spec_json;      ///< the job spec, validated
    bool resume = false;        ///< continue from the newest complete checkpoint, regardless of the spec's `resume`
    std::string trace_file;     ///< Chrome trace to write; empty = none
    std::string job_id{};       ///< the service's id of the job; empty: `distilld run`
    std::uint64_t attempt = 0;  ///< number of this start of the job, from 1; the same for all ranks; 0: no job
    std::uint32_t task = 0;     ///< of a generate job that several share: only the first one waits for the whole store
    /// The files that the worker may open from now on; nullopt: any.
    std::optional<FileRule> files{};
    /// Of several workers that train the job together; nullopt: it is the only one.
    std::optional<RankPlace> rank{};
    /// Secret: keys of the service's environment for a worker that does not inherit it, by the names of their
    /// variables.
    std::map<std::string, std::string> keys{};
    std::uint32_t version = kWorkerProtocolVersion;
    /// The parsed spec_json, not sent over the channel; null: it is invalid.
    std::shared_ptr<const JobSpec> spec{};
};

/// The object in a spec's JSON text; std::invalid_argument if it is not one. spec_text() keeps numbers exact.
boost::json::object spec_object(const std::string& spec_json);
std::string spec_text(const boost::json::object& spec);

/// A missing version reads as 0, which is invalid.
template <class Visitor, class T>
void describe_version(Visitor& v, T& version) {
    std::uint32_t stated = 0;
    if constexpr (std::is_const_v<T>) {
        stated = version;
    }
    v("version", stated);
    if constexpr (!std::is_const_v<T>) {
        version = stated;
    }
}

template <class Visitor, Describes<HelloMessage> T>
void describe(Visitor& v, T& hello) {
    describe_version(v, hello.version);
    v("pid", hello.pid);
}

template <class Visitor, Describes<WorkerStart> T>
void describe(Visitor& v, T& start) {
    describe_version(v, start.version);
    std::optional<boost::json::object> spec;
    if constexpr (std::is_const_v<T>) {
        spec = spec_object(start.spec_json);
    }
    v("spec", spec);
    if constexpr (!std::is_const_v<T>) {
        start.spec_json = spec ? spec_text(*spec) : std::string();
    }
    v("resume", start.resume);
    v("trace_file", start.trace_file);
    v("job_id", start.job_id);
    v("attempt", start.attempt);
    v("task", start.task);
    v("files", start.files);
    v("rank", start.rank);
    v("keys", start.keys);
}

/// A row of the message tables in addition to those of events and orders.
template <class Message>
struct MessageRow {
    using type = Message;
    const char* name;
};

/// To the worker: its task, then orders.
inline constexpr std::tuple kDownMessages = std::tuple_cat(std::tuple(MessageRow<WorkerStart>{"start"}), kWorkerOrders);
/// From the worker: the hello, then events.
inline constexpr std::tuple kUpMessages = std::tuple_cat(std::tuple(MessageRow<HelloMessage>{"hello"}), kWorkerEvents);

using DownMessage = VariantOf<kDownMessages>;
using UpMessage = VariantOf<kUpMessages>;

/// See server/protocol/message_codec.hpp.
Result<void> check_message(const HelloMessage& hello);
Result<void> check_message(const WorkerStart& start);
Result<void> check_message(const SetLimitCommand& command);

}  // namespace distilld
