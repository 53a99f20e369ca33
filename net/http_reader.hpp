#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/byte_stream.hpp"

namespace distilld {

/// Start line and header fields of a message.
struct HttpHead {
    std::string method;    ///< of a request
    std::string target;    ///< of a request
    unsigned status = 0;   ///< of an answer
    unsigned version = 0;  ///< 10 or 11
    std::vector<std::pair<std::string, std::string>> fields{};

    /// The first field of that name, in any case; null if there is none.
    [[nodiscard]] const std::string* find(std::string_view name) const noexcept;
    /// Its value; empty if there is none.
    [[nodiscard]] std::string_view value(std::string_view name) const noexcept;
    [[nodiscard]] std::size_t count(std::string_view name) const noexcept;
};

/// Reads one HTTP/1.1 message from a connection. Beast parses in the coroutine that reads, never in a handler of its
/// own: an exception there would leave the event loop and end the program.
///
/// `max_header_bytes` bounds the header including the trailer, and the extension of each chunk (is_header_limit()).
/// Trailer fields are dropped. A Transfer-Encoding other than chunked is an error, as the body's length would be
/// unknown (RFC 9112 6.3).
class HttpReader {
  public:
    struct Piece {
        boost::system::error_code failure;
        std::size_t bytes = 0;
    };

    virtual ~HttpReader() = default;

    /// `buffer` holds received bytes that were not read yet; bytes after the message stay there.
    virtual boost::asio::awaitable<boost::system::error_code> read_head(ByteStream& stream,
                                                                        boost::beast::flat_buffer& buffer) = 0;
    /// Bytes of the body as they come: as many as fit into `space`, none at the end. The head must have been read, and
    /// `space` must not be empty.
    virtual boost::asio::awaitable<Piece> read_body(ByteStream& stream, boost::beast::flat_buffer& buffer,
                                                    std::span<char> space) = 0;

    [[nodiscard]] virtual const HttpHead& head() const = 0;
    /// A byte of the message has come.
    [[nodiscard]] virtual bool begun() const = 0;
    /// The whole message has been read.
    [[nodiscard]] virtual bool done() const = 0;
    /// The other queries need a message with its head read.
    [[nodiscard]] virtual bool keep_alive() const = 0;
    [[nodiscard]] virtual bool chunked() const = 0;
    [[nodiscard]] virtual std::optional<std::uint64_t> content_length() const = 0;
    /// Maximum length of a chunked body (http::error::body_limit); any length if never called.
    virtual void limit_body(std::uint64_t bytes) = 0;
};

[[nodiscard]] std::unique_ptr<HttpReader> make_request_reader(std::size_t max_header_bytes);

/// Skips interim answers (1xx), up to a bound (RFC 9110 15.2); 101 is an error.
[[nodiscard]] std::unique_ptr<HttpReader> make_answer_reader(std::size_t max_header_bytes);

}  // namespace distilld
