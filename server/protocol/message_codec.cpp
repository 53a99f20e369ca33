#include "server/protocol/message_codec.hpp"

#include <boost/json/value.hpp>
#include <utility>

#include "base/json_text.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

constexpr std::size_t kShownOfALine = 80;

}  // namespace

Error message_error(const std::string& what) {
    return Error{ErrorKind::internal, "worker protocol: " + what};
}

std::string write_line(const char* type, json::object fields) {
    json::object object;
    object.reserve(fields.size() + 1);
    object["type"] = type;
    for (auto& field : fields) {
        object[field.key()] = std::move(field.value());
    }
    return to_text(object) + '\n';
}

Result<OpenedMessage> open_line(std::string_view line) {
    if (line.size() > kWorkerMessageLimit) {
        return message_error("the message is longer than " + std::to_string(kWorkerMessageLimit) + " bytes");
    }
    auto value = parse_json_text(line, kMessageDepthLimit);
    if (!value) {
        return message_error("the line is not JSON (" + value.error().reason +
                             "): " + std::string(line.substr(0, kShownOfALine)));
    }
    if (!value->is_object()) {
        return message_error("the message is not an object");
    }
    OpenedMessage message;
    message.fields = std::move(value->get_object());
    const json::value* type = message.fields.if_contains("type");
    if (type == nullptr || !type->is_string()) {
        return message_error("/type: is missing or not a string");
    }
    message.type = std::string(type->get_string());
    return message;
}

}  // namespace distilld
