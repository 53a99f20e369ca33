#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "base/json_fields.hpp"
#include "base/type_table.hpp"

/// Messages of a table (base/type_table.hpp) as lines of JSON. "type" is the name in the message's row; the other
/// members are its described fields.
namespace distilld {

inline constexpr std::size_t kWorkerMessageLimit = 16U << 20;  ///< bytes per line
inline constexpr std::size_t kMessageDepthLimit = 64;

/// "worker protocol: WHAT", of kind internal: the two programs do not agree.
[[nodiscard]] Error message_error(const std::string& what);

/// A message with unchecked content.
struct OpenedMessage {
    std::string type;
    boost::json::object fields;
};

[[nodiscard]] std::string write_line(const char* type, boost::json::object fields);
/// `line` without its newline.
Result<OpenedMessage> open_line(std::string_view line);

/// One line, with the newline.
template <const auto& kTable>
[[nodiscard]] std::string encode_message(const VariantOf<kTable>& message) {
    return std::visit(
        [](const auto& one) {
            return write_line(row_of<std::remove_cvref_t<decltype(one)>>(kTable).name, write_fields(one));
        },
        message);
}

/// Checks a parsed message beyond the types of its fields. Messages without an overload (worker_messages.hpp) need no
/// check.
template <class Message>
Result<void> check_message(const Message& /*message*/) {
    return {};
}

template <class Message, class Variant>
Result<Variant> read_message(const boost::json::object& fields) {
    Message message;
    if (const auto read = read_fields(fields, message); !read) {
        return message_error(read.error().message);
    }
    if (const auto whole = check_message(message); !whole) {
        return whole.error();
    }
    return Variant(std::move(message));
}

/// Parses a message. An unknown type is an error; unknown fields are ignored, missing ones keep their defaults if
/// check_message() allows it.
template <const auto& kTable>
[[nodiscard]] Result<VariantOf<kTable>> decode_message(std::string_view line) {
    using Variant = VariantOf<kTable>;
    const auto opened = open_line(line);
    if (!opened) {
        return opened.error();
    }
    Result<Variant> message = message_error("unknown message type '" + opened->type + "'");
    const auto try_row = [&](const auto& row) {
        using Message = typename std::remove_cvref_t<decltype(row)>::type;
        if (opened->type != row.name) {
            return false;
        }
        message = read_message<Message, Variant>(opened->fields);
        return true;
    };
    std::apply([&](const auto&... rows) { static_cast<void>((try_row(rows) || ...)); }, kTable);
    return message;
}

}  // namespace distilld
