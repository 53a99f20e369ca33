// Answers, as a client's connection brings them: one exchange reads the input from one end of a socket pair.
#include <sys/socket.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "net/byte_stream.hpp"
#include "net/http_connection.hpp"
#include "pipeline/async/tuple.hpp"
#include "tests/fuzz/targets.hpp"

namespace distilld::fuzz {
namespace {

namespace asio = boost::asio;

constexpr std::uint64_t kLargeLimit = 1U << 20;
constexpr std::uint64_t kSmallLimit = 16;

void rethrow(const std::exception_ptr& failure) {
    if (failure) {
        std::rethrow_exception(failure);
    }
}

/// The server: sends all it has, whatever it is asked, and says so.
asio::awaitable<void> send(asio::local::stream_protocol::socket& peer, std::string_view input) {
    const auto bytes = asio::buffer(input.data(), input.size());
    co_await asio::async_write(peer, bytes, kTuple);
    boost::system::error_code ignored;
    peer.shutdown(asio::socket_base::shutdown_send, ignored);
}

void check(const HttpExchange& exchange, std::uint64_t limit) {
    demand(!exchange.malformed || exchange.failure, "a malformed answer is a failure");
    demand(!exchange.reusable || (exchange.whole && !exchange.too_large), "a connection with a rest is not used again");
    if (exchange.failure || exchange.too_large) {
        return;
    }
    const HttpResponse& response = exchange.response;
    demand(exchange.any_byte, "an answer has bytes");
    demand(response.status / 100 != 1, "an interim answer is none");
    demand(response.body != nullptr, "an answer has a body");
    demand(body_text(response).size() <= (is_success(response) ? limit : kErrorBodyLimit),
           "a body is within the limit");
}

}  // namespace

void read_answer(std::string_view input) {
    if (input.empty()) {
        return;
    }
    // The first byte says how large an answer may be.
    const std::uint64_t limit = (static_cast<unsigned char>(input.front()) & 1U) != 0 ? kSmallLimit : kLargeLimit;
    input.remove_prefix(1);
    std::array<int, 2> pair{};
    demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) == 0,
           "there are descriptors");
    asio::io_context io(1);
    asio::ip::tcp::socket socket(io);
    socket.assign(asio::ip::tcp::v4(), pair[0]);  // a stream socket like any other, but for its addresses
    asio::local::stream_protocol::socket peer(io, asio::local::stream_protocol(), pair[1]);
    HttpRequest request = make_get("/");
    request.answer_headers = {"x-header"};
    request.response_limit = limit;
    const std::string head = "GET / HTTP/1.1\r\n\r\n";
    BufferPool buffers;
    TrafficCounters traffic;
    std::optional<HttpExchange> exchange;
    {
        auto connection = std::make_unique<HttpConnection>(ByteStream(std::move(socket)));
        asio::co_spawn(io, send(peer, input), rethrow);
        asio::co_spawn(io, connection->exchange(request, head, buffers, traffic),
                       [&](const std::exception_ptr& failure, HttpExchange result) {
                           rethrow(failure);
                           exchange = std::move(result);
                           connection.reset();  // so that the server is not waited for
                       });
        io.run();
    }
    demand(exchange.has_value(), "an exchange ends");
    check(*exchange, limit);
}

std::vector<std::string> answer_seeds() {
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    const std::string chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
    const std::vector<std::string> answers{
        ok + "Content-Length: 2\r\nX-Header: y\r\n\r\n{}",
        ok + "Content-Length: 2\r\n\r\n{}" + ok + "Content-Length: 2\r\n\r\n{}",
        ok + "Connection: close\r\n\r\nup to the end",
        chunked + "2\r\n{}\r\n0\r\n\r\n",
        chunked + "2;name=value;other=\"quoted \\\" text\"\r\n{}\r\n1;x\r\n \r\n0;last\r\n\r\n",
        chunked + "2\r\n{}\r\n0\r\nX-Trailer: one\r\nX-Header: two\r\nConnection: close\r\n\r\n",
        chunked + "0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        chunked + "2\r\n{}\r\n0\r\nX: " + std::string(70'000, 'a') + "\r\n\r\n",
        chunked + "2;" + std::string(70'000, 'a') + "\r\n{}\r\n0\r\n\r\n",
        ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ok + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + chunked + "0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 503 Busy\r\nRetry-After: 5\r\nContent-Length: 4\r\n\r\nbusy",
    };
    std::vector<std::string> seeds;
    for (const std::string& answer : answers) {
        seeds.push_back('\0' + answer);
        seeds.push_back('\1' + answer);
    }
    return seeds;
}

}  // namespace distilld::fuzz
