#include "tests/simulation/cluster_network.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/json/parse.hpp>
#include <exception>
#include <span>
#include <utility>

#include "base/sha256.hpp"

namespace distilld::test {
namespace {

namespace asio = boost::asio;

/// WebSocketLimits::silence.
constexpr Millis kSilence = 40'000;
constexpr Millis kConnectPatience = 20'000;

class RelaySocket final : public WebSocket {
  public:
    RelaySocket(Network& network, ConnectionPtr connection) : network_(network), connection_(std::move(connection)) {}
    ~RelaySocket() override { network_.relay_end_gone(connection_); }
    RelaySocket(const RelaySocket&) = delete;
    RelaySocket& operator=(const RelaySocket&) = delete;

    asio::awaitable<boost::system::error_code> accept(std::string) override { co_return asio::error::not_connected; }
    asio::awaitable<Opened> open(std::string, std::string, std::string bearer, std::string) override {
        network_.dial(connection_, bearer);
        while (!connection_->answered) {
            co_await connection_->came->wait();
        }
        co_return connection_->opened;
    }
    asio::awaitable<WebSocketMessage> read() override {
        while (connection_->inbox.empty()) {
            co_await connection_->came->wait();
        }
        WebSocketMessage message = std::move(connection_->inbox.front());
        connection_->inbox.pop_front();
        co_return message;
    }
    asio::awaitable<boost::system::error_code> write(std::string text) override {
        if (!connection_->relay_open) {
            co_return asio::error::broken_pipe;
        }
        network_.send_to_service(connection_, std::move(text));
        co_return boost::system::error_code();
    }
    asio::awaitable<void> close(WebSocketClose) override { co_return; }

  private:
    Network& network_;
    ConnectionPtr connection_;
};

std::string hash_of(const std::string& token) {
    Sha256 hash;
    hash.add(std::span<const char>(token));
    return hash.hex();
}

}  // namespace

std::shared_ptr<WebSocket> Network::socket(const std::shared_ptr<Process>& relay, std::uint32_t node) {
    auto connection = std::make_shared<Connection>();
    connection->node = node;
    connection->name = "connection " + std::to_string(++dialled_) + " of " + relay->name();
    connection->relay = relay;
    connection->came = std::make_unique<Condition>(relay->io().get_executor());
    std::erase_if(connections_, [](const auto& one) { return one.expired(); });
    connections_.push_back(connection);
    return std::make_shared<RelaySocket>(*this, std::move(connection));
}

void Network::when_linked(std::uint32_t node, Millis delay, std::function<void()> work) {
    stage_.at(delay, [this, node, work = std::move(work)]() mutable {
        if (is_cut(node)) {
            when_linked(node, cut_until_[node] - stage_.now() + stage_.delay(), std::move(work));
        } else {
            work();
        }
    });
}

void Network::dial(const ConnectionPtr& connection, const std::string& token) {
    stage_.at(stage_.delay(), [this, connection, token, since = stage_.now()] { arrive(connection, token, since); });
}

void Network::arrive(const ConnectionPtr& connection, const std::string& token, Millis since) {
    if (!is_cut(connection->node)) {
        ask_door(connection, token);
    } else if (stage_.now() > since + kConnectPatience) {
        answer(connection, {.failure = asio::error::timed_out});
    } else {
        stage_.at(1000, [this, connection, token, since] { arrive(connection, token, since); });
    }
}

void Network::ask_door(const ConnectionPtr& connection, const std::string& token) {
    const auto service = door_.process.lock();
    if (!service || !service->alive()) {
        answer(connection, {.failure = asio::error::connection_refused});
        return;
    }
    connection->service = service;
    service->post([this, connection, token] {
        const auto port = door_.attempts->find(hash_of(token));
        if (port) {
            accept(connection, port);
            return;
        }
        WebSocket::Opened refused{.failure = asio::error::access_denied, .status = 503};
        if (door_.attempts->is_complete()) {
            refused.status = 401;
            refused.challenge = std::string("Bearer error=\"") + kUnknownAttempt + "\"";
        }
        answer(connection, refused);
    });
}

void Network::answer(const ConnectionPtr& connection, WebSocket::Opened opened) {
    when_linked(connection->node, stage_.delay(), [connection, opened = std::move(opened)] {
        if (const auto relay = connection->relay.lock()) {
            relay->post([connection, opened] {
                connection->opened = opened;
                if (connection->broken && !opened.failure) {
                    connection->opened = {.failure = asio::error::connection_reset};
                }
                connection->answered = true;
                connection->relay_open = !connection->opened.failure && connection->came;
                if (connection->came) {
                    connection->came->notify();
                }
            });
        }
    });
}

void Network::accept(const ConnectionPtr& connection, const std::shared_ptr<AttemptPort>& port) {
    connection->service_open = true;
    connection->port = port;
    connection->number = port->connect();
    connection->writing = std::make_shared<asio::cancellation_signal>();
    stage_.tell(connection->name + " is accepted");
    asio::co_spawn(port->executor(), write_frames(connection, port),
                   asio::bind_cancellation_slot(connection->writing->slot(), [](const std::exception_ptr&) {}));
    answer(connection, {.status = 101});
}

asio::awaitable<void> Network::write_frames(ConnectionPtr connection, std::shared_ptr<AttemptPort> port) {
    for (;;) {
        WebSocketMessage message = co_await port->next(connection->number);
        if (const auto service = connection->service.lock(); !service || !service->alive()) {
            co_return;  // it was killed within this event
        }
        const bool ends = message.closed.has_value();
        if (!ends) {
            check_acknowledged(*connection, message.text);
        }
        send_to_relay(connection, std::move(message));
        if (ends) {
            connection->service_open = false;
            port->disconnect(connection->number);
            co_return;
        }
    }
}

/// Whatever the service says that it has is on its disk.
void Network::check_acknowledged(const Connection& connection, const std::string& frame) {
    const auto header = boost::json::parse(frame.substr(0, frame.find('\n'))).as_object();
    const auto type = std::string(header.at("type").as_string());
    const auto relay = connection.relay.lock();
    if (!relay || type == "message") {
        return;
    }
    const auto number = header.at(type == "ack" ? "number" : "received").to_number<std::uint64_t>();
    const std::string& name = relay->name();  // JOB-ATTEMPT
    const std::string job = name.substr(0, name.rfind('-'));
    const std::uint64_t attempt = std::stoull(name.substr(name.rfind('-') + 1));
    if (disk_.is_open(job, attempt) && number > disk_.received(job, attempt)) {
        stage_.violate(name + ": message " + std::to_string(number) + " is acknowledged, and " +
                       std::to_string(disk_.received(job, attempt)) + " are in the store");
    }
}

void Network::send_to_relay(const ConnectionPtr& connection, WebSocketMessage message) {
    connection->to_relay.push_back(std::move(message));
    when_linked(connection->node, stage_.delay(), [this, connection] { deliver_to_relay(connection); });
}

void Network::deliver_to_relay(const ConnectionPtr& connection) {
    const auto relay = connection->relay.lock();
    if (connection->to_relay.empty() || !relay) {
        return;
    }
    relay->post([connection, message = std::move(connection->to_relay.front())] {
        // What the service sends behind its answer may be faster here.
        if ((connection->relay_open || !connection->answered) && connection->came) {
            connection->relay_open = connection->relay_open && !message.closed;
            connection->inbox.push_back(message);
            connection->came->notify();
        }
    });
    connection->to_relay.pop_front();
}

void Network::send_to_service(const ConnectionPtr& connection, std::string text) {
    connection->to_service.push_back(std::move(text));
    when_linked(connection->node, stage_.delay(), [this, connection] { deliver_to_service(connection); });
}

void Network::deliver_to_service(const ConnectionPtr& connection) {
    const auto service = connection->service.lock();
    if (connection->to_service.empty() || !service) {
        return;
    }
    service->post([this, connection, frame = std::move(connection->to_service.front())] {
        const auto port = connection->port.lock();
        if (!connection->service_open || !port) {
            return;
        }
        if (auto closed = port->take(connection->number, frame)) {
            stage_.tell(connection->name + " is closed: " + closed->reason);
            send_to_relay(connection, {.closed = std::move(closed)});
            end_at_service(connection);
        }
    });
    connection->to_service.pop_front();
}

void Network::end_at_service(const ConnectionPtr& connection) {
    if (!std::exchange(connection->service_open, false)) {
        return;
    }
    connection->writing->emit(asio::cancellation_type::terminal);
    if (const auto port = connection->port.lock()) {
        port->disconnect(connection->number);
    }
}

void Network::break_service_end(const ConnectionPtr& connection) {
    if (const auto service = connection->service.lock()) {
        service->post([connection] { end_at_service(connection); });
    }
}

void Network::break_relay_end(const ConnectionPtr& connection) {
    if (const auto relay = connection->relay.lock()) {
        relay->post([connection] {
            connection->broken = true;
            if (std::exchange(connection->relay_open, false) && connection->came) {
                connection->inbox.push_back({.failure = asio::error::connection_reset});
                connection->came->notify();
            }
        });
    }
}

void Network::relay_end_gone(const ConnectionPtr& connection) {
    connection->relay_open = false;
    connection->came.reset();
    const Millis delay = connection->forgets_end ? kSilence : stage_.delay();
    // Behind what is on its way.
    when_linked(connection->node, delay, [this, connection] {
        if (connection->to_service.empty()) {
            break_service_end(connection);
        } else {
            when_linked(connection->node, 500, [this, connection] { break_service_end(connection); });
        }
    });
}

void Network::service_ended() {
    door_ = {};
    for (const auto& one : connections_) {
        if (const auto connection = one.lock(); connection && connection->service_open) {
            connection->service_open = false;
            when_linked(connection->node, stage_.delay(), [this, connection] { break_relay_end(connection); });
        }
    }
}

bool Network::is_cut(std::uint32_t node) const {
    const auto found = cut_until_.find(node);
    return found != cut_until_.end() && stage_.now() < found->second;
}

void Network::cut(std::uint32_t node, Millis length) {
    stage_.tell("node " + std::to_string(node) + " is cut off for " + std::to_string(length) + " ms");
    auto& until = cut_until_[node];
    until = std::max(until, stage_.now() + length);
    if (length <= kSilence) {
        return;
    }
    for (const auto& one : connections_) {
        if (const auto connection = one.lock(); connection && connection->node == node) {
            stage_.at(kSilence, [this, connection] {
                connection->to_relay.clear();
                connection->to_service.clear();
                break_relay_end(connection);
                break_service_end(connection);
            });
        }
    }
}

void Network::break_silently(std::uint32_t node) {
    for (const auto& one : connections_) {
        if (const auto connection = one.lock(); connection && connection->node == node && connection->relay_open) {
            stage_.tell(connection->name + " breaks, and the service does not hear of it");
            connection->forgets_end = true;
            connection->to_relay.clear();
            break_relay_end(connection);
        }
    }
}

void Network::watch_stopped(const std::shared_ptr<Process>& relay) {
    stage_.at(kSilence, [this, relay] {
        for (const auto& one : connections_) {
            const auto connection = one.lock();
            if (connection && relay->stopped() && connection->relay.lock() == relay) {
                break_service_end(connection);
            }
        }
    });
}

}  // namespace distilld::test
