#include "net/web_socket.hpp"

#include <array>
#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <utility>

#include "net/byte_stream_layers.hpp"
#include "net/http_connection.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/tuple.hpp"

namespace distilld {

/// The layers of a ByteStream as one stream with one type of handler, so that Beast's code for a stream, which is
/// large, is compiled once.
class WebSocketLayers {
  public:
    using executor_type = boost::beast::tcp_stream::executor_type;
    using next_layer_type = boost::beast::tcp_stream;

    explicit WebSocketLayers(ByteStream& stream) : streams_(*stream.streams_) {}

    executor_type get_executor() noexcept { return streams_.tcp.get_executor(); }
    /// What Beast closes when the peer is silent.
    next_layer_type& next_layer() noexcept { return streams_.tcp; }
    const next_layer_type& next_layer() const noexcept { return streams_.tcp; }

    template <class Buffers, class Token>
    auto async_read_some(const Buffers& buffers, Token&& token) {
        const auto start = [this](Transferred done, boost::asio::mutable_buffer into) {
            over_layer([&](auto& layer) { layer.async_read_some(into, std::move(done)); });
        };
        boost::asio::mutable_buffer first;
        for (const boost::asio::mutable_buffer one : boost::beast::buffers_range_ref(buffers)) {
            first = first.size() == 0 ? one : first;
        }
        return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(start, token, first);
    }

    template <class Buffers, class Token>
    auto async_write_some(const Buffers& buffers, Token&& token) {
        const auto start = [this](Transferred done, Pieces pieces) {
            over_layer([&](auto& layer) { layer.async_write_some(pieces, std::move(done)); });
        };
        Pieces pieces;
        std::size_t count = 0;
        for (const boost::asio::const_buffer one : boost::beast::buffers_range_ref(buffers)) {
            if (count < pieces.size() && one.size() > 0) {
                pieces[count++] = one;
            }
        }
        return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(start, token, pieces);
    }

    /// Found by Beast.
    template <class Handler>
    friend void async_teardown(boost::beast::role_type role, WebSocketLayers& layers, Handler&& handler) {
        boost::asio::any_completion_handler<void(boost::system::error_code)> done(std::forward<Handler>(handler));
        layers.over_layer([&](auto& layer) {
            using boost::beast::websocket::async_teardown;
            async_teardown(role, layer, std::move(done));
        });
    }

  private:
    using Transferred = boost::asio::any_completion_handler<void(boost::system::error_code, std::size_t)>;
    /// A frame has two and the head of an HTTP message one per field. They go out together.
    using Pieces = std::array<boost::asio::const_buffer, 16>;

    void over_layer(auto&& call) {
        if (streams_.tls) {
            call(*streams_.tls);
        } else {
            call(streams_.tcp);
        }
    }

    ByteStream::Streams& streams_;
};

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
namespace ws = boost::beast::websocket;
using boost::system::error_code;

constexpr std::chrono::seconds kCloseDeadline{2};
constexpr std::chrono::seconds kOpenDeadline{30};
constexpr std::size_t kMaxReasonBytes = 123;  // RFC 6455, section 5.5.1

/// Throws operation_aborted if the caller was cancelled. Beast also reports it without a cancellation, when the peer
/// has closed the connection or the other operation has already reported its failure: the result is not_connected then.
asio::awaitable<error_code> throw_if_cancelled(error_code failure) {
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
        throw_if_aborted(failure);
    }
    co_return is_abort(failure) ? asio::error::make_error_code(asio::error::not_connected) : failure;
}

class LayeredWebSocket final : public WebSocket {
  public:
    LayeredWebSocket(ByteStream& stream, WebSocketLimits limits) : stream_(stream), socket_(stream), limits_(limits) {
        stream_.expires_never();  // the socket has a timer of its own
        socket_.set_option(ws::stream_base::timeout{kOpenDeadline, limits.silence, true});
        socket_.read_message_max(limits.message_bytes);
        socket_.text(true);
    }

    asio::awaitable<error_code> accept(std::string key) override {
        bhttp::request<bhttp::empty_body> request(bhttp::verb::get, "/", 11);
        request.set(bhttp::field::host, "-");
        request.set(bhttp::field::upgrade, "websocket");
        request.set(bhttp::field::connection, "Upgrade");
        request.set(bhttp::field::sec_websocket_key, key);
        request.set(bhttp::field::sec_websocket_version, "13");
        const auto accepted = co_await socket_.async_accept(request, kTuple);
        co_return std::get<0>(accepted);
    }

    asio::awaitable<Opened> open(std::string host, std::string target, std::string bearer,
                                 std::string user_agent) override {
        socket_.set_option(ws::stream_base::decorator([&bearer, &user_agent](ws::request_type& request) {
            request.set(bhttp::field::authorization, "Bearer " + bearer);
            request.set(bhttp::field::user_agent, user_agent);
        }));
        ws::response_type answer;
        const auto opened = co_await socket_.async_handshake(answer, host, target, kTuple);
        Opened result;
        result.failure = std::get<0>(opened);
        throw_if_aborted(result.failure);
        if (result.failure) {
            result.status = result.failure == ws::error::upgrade_declined ? answer.result_int() : 0;
            result.challenge = std::string(answer[bhttp::field::www_authenticate]);
        }
        co_return result;
    }

    asio::awaitable<WebSocketMessage> read() override {
        WebSocketMessage message;
        beast::flat_buffer buffer(limits_.message_bytes);
        const auto read = co_await socket_.async_read(buffer, kTuple);
        message.failure = co_await throw_if_cancelled(std::get<0>(read));
        // What fails after the peer's close frame says less than that.
        if (const ws::close_reason& why = socket_.reason(); message.failure && why) {
            message.closed = WebSocketClose{why.code, std::string(why.reason.data(), why.reason.size())};
        } else if (!message.failure) {
            message.text = beast::buffers_to_string(buffer.data());
        }
        co_return message;
    }

    asio::awaitable<error_code> write(std::string text) override {
        const auto failure = co_await with_deadline(write_all(std::move(text)), limits_.write);
        co_return failure.value_or(asio::error::make_error_code(asio::error::timed_out));
    }

    asio::awaitable<void> close(WebSocketClose why) override {
        ws::close_reason reason(ws::close_code(why.code), std::string_view(why.reason).substr(0, kMaxReasonBytes));
        static_cast<void>(co_await with_deadline(say_close(reason), kCloseDeadline));
        stream_.close();
    }

  private:
    asio::awaitable<error_code> write_all(std::string text) {
        const auto written = co_await socket_.async_write(asio::buffer(text), kTuple);
        co_return co_await throw_if_cancelled(std::get<0>(written));
    }

    asio::awaitable<void> say_close(ws::close_reason reason) {
        const auto closed = co_await socket_.async_close(reason, kTuple);
        static_cast<void>(closed);
    }

    ByteStream& stream_;
    ws::stream<WebSocketLayers, /*deflateSupported=*/false> socket_;
    WebSocketLimits limits_;
};

}  // namespace

std::unique_ptr<WebSocket> make_web_socket(ByteStream& stream, WebSocketLimits limits) {
    return std::make_unique<LayeredWebSocket>(stream, limits);
}

}  // namespace distilld
