// Requests, as a connection brings them: a whole session reads the input from one end of a socket pair.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <memory>
#include <utility>

#include "pipeline/async/tuple.hpp"
#include "server/http/router.hpp"
#include "server/http/session.hpp"
#include "tests/fuzz/targets.hpp"

namespace distilld::fuzz {
namespace {

namespace asio = boost::asio;

constexpr std::uint64_t kBodyLimit = 512;
constexpr std::size_t kPiece = 64U << 10;

asio::awaitable<http::Response> answer(http::Request request) {
    demand(request.path.starts_with('/'), "a path begins with a slash");
    demand(request.body.size() <= kBodyLimit, "a body is within the limit");
    demand(request.header("x-request-id").has_value(), "a request has an id");
    const auto id = request.header("x-request-id").value_or("");
    demand(id.find_first_of("\r\n") == std::string_view::npos, "an id is one line");
    http::Response response;
    response.status = 200;
    response.content_type = "application/json";
    response.body = "{}";
    co_return response;
}

std::vector<http::Route> routes() {
    std::vector<http::Route> rows{{"GET", "/v1/jobs", answer},         {"POST", "/v1/jobs", answer},
                                  {"GET", "/v1/jobs/{id}", answer},    {"POST", "/v1/jobs/{id}/cancel", answer},
                                  {"DELETE", "/v1/jobs/{id}", answer}, {"GET", "/healthz", answer}};
    rows[1].json_body = true;
    rows.back().any_host = true;
    rows.back().vital = true;
    return rows;
}

std::shared_ptr<http::SessionContext> make_context(asio::io_context& io) {
    http::ServerOptions options;
    options.body_limit = kBodyLimit;
    auto origin_check = http::OriginCheck::make("127.0.0.1", asio::ip::make_address("127.0.0.1"), {"name.example"});
    // The server's own mistakes are 500s; no input may make one.
    const http::Observer observer = [](const std::string&, const std::string&, unsigned status, auto) {
        demand(status < 500 || status == 503, "no request is a fault of the server");
    };
    return std::make_shared<http::SessionContext>(io.get_executor(), options, std::move(*origin_check),
                                                  http::Router(routes()), observer);
}

/// The client: sends all it has, says so, and reads to the end.
asio::awaitable<void> send(asio::local::stream_protocol::socket& peer, std::string_view input) {
    const auto bytes = asio::buffer(input.data(), input.size());
    co_await asio::async_write(peer, bytes, kTuple);
    boost::system::error_code ignored;
    peer.shutdown(asio::socket_base::shutdown_send, ignored);
}

asio::awaitable<void> receive(asio::local::stream_protocol::socket& peer, std::string& answers) {
    std::array<char, 4096> piece{};
    for (;;) {
        const auto space = asio::buffer(piece);
        const auto read = co_await peer.async_read_some(space, kTuple);
        if (std::get<0>(read)) {
            co_return;
        }
        if (answers.size() < kPiece) {
            answers.append(piece.data(), std::get<1>(read));
        }
    }
}

void rethrow(const std::exception_ptr& failure) {
    if (failure) {
        std::rethrow_exception(failure);
    }
}

}  // namespace

void read_request(std::string_view input) {
    if (input.empty()) {
        return;
    }
    // The first byte says whether the server has room for another connection.
    const bool full = (static_cast<unsigned char>(input.front()) & 1U) != 0;
    input.remove_prefix(1);
    std::array<int, 2> pair{};
    demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) == 0,
           "there are descriptors");
    asio::io_context io(1);
    asio::ip::tcp::socket socket(io);
    socket.assign(asio::ip::tcp::v4(), pair[0]);  // a stream socket like any other, but for its addresses
    asio::local::stream_protocol::socket peer(io, asio::local::stream_protocol(), pair[1]);
    std::string answers;
    {
        http::Session session(std::move(socket), make_context(io));
        asio::co_spawn(io, full ? session.run_when_full() : session.run(), rethrow);
        asio::co_spawn(io, send(peer, input), rethrow);
        asio::co_spawn(io, receive(peer, answers), rethrow);
        io.run();
    }
    demand(answers.empty() || answers.starts_with("HTTP/1."), "an answer is HTTP");
}

std::vector<std::string> request_seeds() {
    const std::string host = "Host: localhost:8500\r\n";
    const std::string chunked =
        "POST /v1/jobs HTTP/1.1\r\n" + host + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    const std::vector<std::string> requests{
        "GET /v1/jobs?limit=3&state=a%20b HTTP/1.1\r\n" + host + "\r\n",
        "POST /v1/jobs HTTP/1.1\r\n" + host + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        chunked + "2\r\n{}\r\n0\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\n" + host +
            "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        "POST /v1/jobs/j%2F1/cancel HTTP/1.1\r\n" + host + "Origin: http://evil.example\r\n\r\n",
        "DELETE /v1/jobs/j HTTP/1.1\r\n" + host + "X-Request-Id: a:b.c\r\nConnection: close\r\n\r\n",
        "GET http://name.example:80/healthz HTTP/1.1\r\nHost: name.example\r\n\r\n",
        "GET /healthz HTTP/1.0\r\n\r\n",
        "HEAD /v1/jobs/j HTTP/1.1\r\n" + host + "Sec-Fetch-Site: cross-site\r\n\r\n",
        "PUT /nowhere HTTP/1.1\r\n" + host + "Content-Length: 999999999999\r\n\r\n",
        "GET / HTTP/1.1\r\n" + host + host + "\r\n",
        chunked + "2;name=value;other=\"quoted \\\" text\"\r\n{}\r\n0;last\r\n\r\n",
        chunked + "2\r\n{}\r\n0\r\nX-Trailer: one\r\nX-Request-Id: two\r\nConnection: close\r\n\r\n",
        chunked + "0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        chunked + "2\r\n{}\r\n0\r\nX: " + std::string(70'000, 'a') + "\r\n\r\n",
        chunked + "2;" + std::string(70'000, 'a') + "\r\n{}\r\n0\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\n" + host +
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /v1/jobs HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    };
    std::vector<std::string> seeds;
    for (const std::string& request : requests) {
        seeds.push_back('\0' + request);
        seeds.push_back('\1' + request);
    }
    seeds.push_back('\0' + requests[0] + requests[1] + requests[2]);  // one behind the other
    return seeds;
}

}  // namespace distilld::fuzz
