#pragma once

#include <boost/system/error_code.hpp>
#include <type_traits>

namespace distilld {

/// What is wrong with a message, besides Beast's own errors.
enum class HttpError {
    transfer_encoding = 1,  ///< a coding other than chunked, chunked twice, or in HTTP/1.0
    too_many_interim_answers,
    protocol_switched,
    bytes_behind_answer,
};

[[nodiscard]] boost::system::error_code make_error_code(HttpError error) noexcept;

/// Whether the message is at fault, rather than the connection or a peer that left.
[[nodiscard]] bool is_malformed(boost::system::error_code failed) noexcept;

/// Whether a header, a trailer or a chunk extension is above its limit.
[[nodiscard]] bool is_header_limit(boost::system::error_code failed) noexcept;

}  // namespace distilld

template <>
struct boost::system::is_error_code_enum<distilld::HttpError> : std::true_type {};
