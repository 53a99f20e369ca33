#include "server/http/streamed_body.hpp"

#include <boost/asio/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/system/system_error.hpp>
#include <span>
#include <utility>

#include "net/http_error.hpp"
#include "pipeline/async/abort.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
namespace bhttp = boost::beast::http;
using boost::system::error_code;
using http::BodyEnd;

constexpr std::size_t kPieceBytes = 128U << 10;

BodyEnd end_of(const error_code& failed) {
    if (failed == bhttp::error::body_limit) {
        return BodyEnd::too_large;
    }
    return is_malformed(failed) ? BodyEnd::malformed : BodyEnd::lost;
}

}  // namespace

StreamedBody::StreamedBody(Connection& connection, std::unique_ptr<HttpReader> reader, std::uint64_t limit)
    : connection_(connection),
      reader_(std::move(reader)),
      expected_bytes_(reader_->content_length().value_or(reader_->chunked() ? limit : 0)) {
    reader_->limit_body(limit);
    if (reader_->done()) {
        end_ = BodyEnd::whole;
    }
}

asio::awaitable<http::BodyPiece> StreamedBody::next() {
    http::BodyPiece piece;
    if (end_ != BodyEnd::not_yet) {
        piece.end = end_;
        co_return piece;
    }
    piece.bytes.resize(kPieceBytes);
    std::size_t filled = 0;
    connection_.allow_transfer(kPieceBytes);
    while (end_ == BodyEnd::not_yet && filled < kPieceBytes) {
        const std::span<char> space(piece.bytes.data() + filled, kPieceBytes - filled);
        const auto read = co_await reader_->read_body(connection_.stream, connection_.buffer, space);
        if (is_abort(read.failure)) {
            throw boost::system::system_error(read.failure);
        }
        filled += read.bytes;
        if (read.failure) {
            end_ = end_of(read.failure);
            filled = 0;
        } else if (reader_->done()) {
            end_ = BodyEnd::whole;
        }
    }
    connection_.stream.expires_never();
    piece.bytes.resize(filled);
    piece.end = end_;
    co_return piece;
}

}  // namespace distilld::http
