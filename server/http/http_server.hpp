#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/http/http_message.hpp"

namespace distilld::http {

/// Answers one request. May suspend (a teacher waits for its batch). An exception becomes a 500 without internal
/// details.
using Handler = std::function<boost::asio::awaitable<http::Response>(http::Request)>;

class Authenticator;
struct AnswerRecord;
struct ServerState;

/// The right that a caller needs if the server has an Authenticator.
enum class Right {
    by_method,  ///< GET and HEAD need read, other methods submit
    nothing,    ///< open to all; no key is checked
    admin,
};

/// One row of the routing table. `pattern` is a path; its segments may be {name}, which matches one segment.
struct Route {
    std::string method;
    std::string pattern;
    Handler handler;
    /// The handler is cancelled (terminal) when its client closes the connection: for work that only this client wants.
    bool only_for_client = false;
    /// A body needs a JSON media type; another type, or none, is refused with 415.
    bool json_body = false;
    /// Answered under any Host, because probes and scrapers use names that the server does not know. Only for what a
    /// stranger may read.
    bool any_host = false;
    /// The handler reads the body itself while it arrives (Request::body_source). If it leaves a rest unread, the
    /// connection is closed.
    bool streamed_body = false;
    /// Maximum bytes of a body; 0 = the server's limit.
    std::uint64_t body_limit = 0;
    /// Answered, once per connection, even if the server has reached max_connections. For short answers.
    bool vital = false;
    Right right = Right::by_method;
    /// Maximum bytes of a message; above 0, the route is for WebSockets, and its handler answers with
    /// http::Response::messages or a refusal.
    std::size_t message_limit = 0;
    /// Decides in place of the server's; null = the server's.
    std::shared_ptr<Authenticator> authenticator{};
};

/// Called for each answer to a method other than GET and HEAD, refusals included. Must not block.
using Auditor = std::function<void(const AnswerRecord&)>;

/// Called for every answer, for metrics. `pattern`: of the matched route, or "unmatched".
using Observer = std::function<void(const std::string& method, const std::string& pattern, unsigned status,
                                    std::chrono::nanoseconds duration)>;

struct ServerOptions {
    std::string listen = "127.0.0.1:0";  ///< ADDRESS:PORT or [v6]:PORT; port 0 = any free port
    /// Further names that requests may use in Host, besides localhost and the host of `listen` (origin_check.hpp).
    std::vector<std::string> hosts;
    std::shared_ptr<boost::asio::ssl::context> tls{};  ///< null = plain HTTP (tls_context.hpp)
    std::shared_ptr<Authenticator> authenticator{};    ///< null: OriginCheck alone decides
    Auditor auditor{};                                 ///< may be empty
    std::uint64_t body_limit = 8ULL << 20;
    std::uint32_t max_connections = 4096;
    std::uint32_t max_streams = 2048;  ///< part of max_connections; further streams are refused with 503
    std::chrono::seconds header_timeout{30};
    std::chrono::seconds idle_timeout{75};
    std::chrono::seconds handler_timeout{600};  ///< deadline of a handler, then 503; streams excepted
};

/// An HTTP/1.1 server: keep-alive, limits, deadlines, chunked streams, 404/405 with Allow, HEAD from GET, problem+json
/// (RFC 9457) for errors before a handler, and refusal of requests that web pages of other sites send. One executor for
/// all sessions; it must be a strand or a single-threaded context.
class Server {
  public:
    /// Use make_server().
    Server(std::shared_ptr<ServerState> state, std::string address);
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server();

    /// The bound address with the real port: "127.0.0.1:8500".
    [[nodiscard]] const std::string& address() const noexcept { return address_; }
    /// Accepts until cancelled (terminal), then waits for the running sessions (each is cancelled after `grace`).
    boost::asio::awaitable<void> run();
    /// Stops accepting and makes run() return; running answers get `grace` to finish. On the server's executor.
    void stop(std::chrono::seconds grace);

  private:
    std::shared_ptr<ServerState> state_;  ///< outlives the server while sessions end
    std::string address_;
};

/// Binds and listens at once, so an address in use is an error here.
Result<std::unique_ptr<Server>> make_server(boost::asio::any_io_executor executor, ServerOptions options,
                                            std::vector<Route> routes, Observer observer = {});

}  // namespace distilld::http
