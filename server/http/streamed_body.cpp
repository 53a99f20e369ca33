#include "server/http/streamed_body.hpp"

#include <boost/asio/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/system/system_error.hpp>
#include <utility>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/tuple.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
namespace bhttp = boost::beast::http;
using api::BodyEnd;
using boost::system::error_code;

constexpr std::size_t kPieceBytes = 128U << 10;

BodyEnd end_of(const error_code& failed) {
    if (failed == bhttp::error::body_limit) {
        return BodyEnd::too_large;
    }
    if (failed == bhttp::error::bad_chunk || failed == bhttp::error::bad_chunk_extension) {
        return BodyEnd::malformed;
    }
    return BodyEnd::lost;
}

}  // namespace

StreamedBody::StreamedBody(Connection& connection, HeadParser&& head, std::uint64_t limit)
    : connection_(connection),
      parser_(std::move(head)),
      expected_bytes_(parser_.content_length().value_or(parser_.chunked() ? limit : 0)) {
    parser_.body_limit(limit);
    if (parser_.is_done()) {
        end_ = BodyEnd::whole;
    }
}

asio::awaitable<api::BodyPiece> StreamedBody::next() {
    api::BodyPiece piece;
    if (end_ != BodyEnd::not_yet) {
        piece.end = end_;
        co_return piece;
    }
    piece.bytes.resize(kPieceBytes);
    auto& body = parser_.get().body();
    body.data = piece.bytes.data();
    body.size = piece.bytes.size();
    body.more = true;
    connection_.allow_transfer(kPieceBytes);
    const auto read = co_await bhttp::async_read(connection_.stream, connection_.buffer, parser_, kTuple);
    connection_.stream.expires_never();
    const error_code failed = std::get<0>(read);
    if (is_abort(failed)) {
        throw boost::system::system_error(failed);
    }
    if (failed && failed != bhttp::error::need_buffer) {
        end_ = end_of(failed);
        piece.bytes.clear();
    } else {
        piece.bytes.resize(kPieceBytes - parser_.get().body().size);
        if (parser_.is_done()) {
            end_ = BodyEnd::whole;
        }
    }
    piece.end = end_;
    co_return piece;
}

}  // namespace distilld::http
