#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/http_message.hpp"
#include "base/error.hpp"

namespace distilld::http {

/// Answers one request. May suspend (a teacher waits for its batch). An exception becomes a 500 that says nothing of
/// the inside.
using Handler = std::function<boost::asio::awaitable<api::Response>(api::Request)>;

class Doorkeeper;
struct AnswerRecord;

/// What a caller must be allowed, where the server has a Doorkeeper.
enum class Right {
    by_method,  ///< GET and HEAD: to read; everything else: to submit
    nothing,    ///< it is for everybody, and no key is looked at
    admin,
};

/// One row of the routing table. `pattern` is a path whose segments may be {name}; `{name}` matches one segment.
struct Route {
    std::string method;
    std::string pattern;
    Handler handler;
    /// The handler is cancelled (terminal) when its client closes the connection: for work that nobody else wants.
    bool only_for_client = false;
    /// A body must be called JSON; one of another type, or of none, is refused with 415.
    bool json_body = false;
    /// Answered whatever name the request has for the server: probes and scrapers use names that it does not know. For
    /// what a stranger may read.
    bool any_host = false;
    /// The handler reads the body itself, while it arrives (Request::body_source). What it leaves unread ends the
    /// connection.
    bool streamed_body = false;
    /// Largest body that is taken; 0 = the server's limit.
    std::uint64_t body_limit = 0;
    /// Answered, once a connection, even when the server has as many connections as it takes. For short answers.
    bool vital = false;
    Right right = Right::by_method;
};

/// Told of each answer to what would change something, be it a refusal. Must not block.
using Auditor = std::function<void(const AnswerRecord&)>;

/// Told of every answer, for metrics: `pattern` of the route that matched (or "unmatched").
using Observer = std::function<void(const std::string& method, const std::string& pattern, unsigned status,
                                    std::chrono::nanoseconds duration)>;

struct ServerOptions {
    std::string listen = "127.0.0.1:0";  ///< ADDRESS:PORT, [v6]:PORT; port 0 = any free one
    /// Names that requests may have for the server, beside localhost and the host of `listen` (request_gate.hpp).
    std::vector<std::string> hosts;
    std::shared_ptr<boost::asio::ssl::context> tls{};  ///< none = plain HTTP (tls_context.hpp)
    std::shared_ptr<Doorkeeper> doorkeeper{};          ///< none: whoever passes the gate may ask
    Auditor auditor{};                                 ///< may be empty
    std::uint64_t body_limit = 8ULL << 20;
    std::uint32_t max_connections = 4096;
    std::uint32_t max_streams = 2048;  ///< of the connections: more streams are refused with 503
    std::chrono::seconds header_timeout{30};
    std::chrono::seconds idle_timeout{75};
    std::chrono::seconds handler_timeout{600};  ///< deadline of one handler, answer 503 after it; streams excepted
};

/// An HTTP/1.1 server: keep-alive, limits, deadlines, chunked streams, 404/405 with Allow, HEAD from GET, problem+json
/// errors (RFC 9457) for what goes wrong before a handler, and refusal of what web pages of other sites send. One
/// executor for all sessions, which must be a strand or a single-threaded context.
class Server {
  public:
    virtual ~Server() = default;
    /// Bound address as "127.0.0.1:8500" (the real port).
    [[nodiscard]] virtual std::string address() const = 0;
    /// Accepts until cancelled (terminal), then waits for the sessions under way (each is cancelled after `grace`).
    virtual boost::asio::awaitable<void> run() = 0;
    /// Stops accepting and makes run() return; answers under way get `grace` to finish. On the server's executor.
    virtual void stop(std::chrono::seconds grace) = 0;
};

/// Binds and listens at once, so that an address in use is an error here.
Result<std::unique_ptr<Server>> make_server(boost::asio::any_io_executor executor, ServerOptions options,
                                            std::vector<Route> routes, Observer observer = {});

}  // namespace distilld::http
