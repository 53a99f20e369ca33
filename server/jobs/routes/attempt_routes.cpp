#include "server/jobs/routes/attempt_routes.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/protocol/numbered_link.hpp"
#include "server/security/token_authenticator.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// Brings the frames of one connection to the port's executor.
class PortPeer final : public http::MessagePeer {
  public:
    PortPeer(std::shared_ptr<AttemptPort> port, std::uint64_t connection)
        : port_(std::move(port)), connection_(connection) {}
    ~PortPeer() override {
        asio::post(port_->executor(), [port = port_, connection = connection_] { port->disconnect(connection); });
    }
    PortPeer(const PortPeer&) = delete;
    PortPeer& operator=(const PortPeer&) = delete;

    asio::awaitable<std::optional<WebSocketClose>> take(std::string message) override {
        auto taking = [port = port_, connection = connection_, frame = std::move(message)]() mutable {
            return port->take(connection, std::move(frame));
        };
        co_return co_await run_on(port_->executor(), std::move(taking));
    }

    asio::awaitable<WebSocketMessage> next() override {
        co_return co_await asio::co_spawn(port_->executor(), port_->next(connection_), asio::use_awaitable);
    }

  private:
    std::shared_ptr<AttemptPort> port_;
    std::uint64_t connection_;
};

asio::awaitable<http::Response> open_channel(RemoteAttempts& attempts, http::Request request) {
    auto port = attempts.find(request.caller ? request.caller->id : std::string());
    if (!port) {
        co_return unavailable(request.path, "attempt_over", "the attempt has just ended");
    }
    auto connecting = [port] { return port->connect(); };
    const std::uint64_t connection = co_await run_on(port->executor(), std::move(connecting));
    http::Response answer;
    answer.status = 101;
    answer.messages = std::make_shared<PortPeer>(std::move(port), connection);
    co_return answer;
}

}  // namespace

http::Route make_attempt_route(RemoteAttempts& attempts) {
    const auto lookup = [&attempts](const std::string& hash) {
        if (attempts.find(hash)) {
            return TokenStanding::known;
        }
        return attempts.is_complete() ? TokenStanding::unknown : TokenStanding::not_yet;
    };
    http::Route route = api_route("GET", kAttemptChannelPath, [&attempts](http::Request request) {
        return open_channel(attempts, std::move(request));
    });
    route.any_host = true;  // the token is what it needs, under whatever name a node knows the service
    route.message_limit = kLinkFrameLimit;
    route.authenticator = make_token_authenticator("relay", kUnknownAttempt, lookup);
    return route;
}

}  // namespace distilld
