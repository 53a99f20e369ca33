#include "server/protocol/worker_messages.hpp"

#include <boost/json/value.hpp>
#include <stdexcept>
#include <utility>

#include "base/json_text.hpp"
#include "server/protocol/message_codec.hpp"

namespace distilld {
namespace {

Result<void> check_version(std::uint32_t version) {
    if (version == kWorkerProtocolVersion) {
        return {};
    }
    return message_error("/version: the other side speaks version " + std::to_string(version) + ", not " +
                         std::to_string(kWorkerProtocolVersion) +
                         ": distilld and distilld-worker are of different builds");
}

}  // namespace

boost::json::object spec_object(const std::string& spec_json) {
    auto spec = parse_json_text(spec_json, kMessageDepthLimit);
    if (!spec || !spec->is_object()) {
        throw std::invalid_argument("the spec of a worker is not a JSON object");
    }
    return std::move(spec->get_object());
}

std::string spec_text(const boost::json::object& spec) {
    return to_text(spec);
}

Result<void> check_message(const HelloMessage& hello) {
    if (hello.pid < 1) {
        return message_error("/pid: is missing or not a process");
    }
    return check_version(hello.version);
}

Result<void> check_message(const WorkerStart& start) {
    if (start.spec_json.empty()) {
        return message_error("/spec: is missing");
    }
    return check_version(start.version);
}

Result<void> check_message(const SetLimitCommand& command) {
    if (command.max_concurrent < 1) {
        return message_error("/max_concurrent: is missing or 0");
    }
    return {};
}

}  // namespace distilld
