#pragma once

#include <boost/asio/cancellation_signal.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/web_socket.hpp"
#include "pipeline/async/condition.hpp"
#include "server/supervisor/remote_attempts.hpp"
#include "tests/simulation/cluster_stage.hpp"
#include "tests/simulation/cluster_store.hpp"

namespace distilld::test {

/// The service as relays see it.
struct Door {
    std::weak_ptr<Process> process;
    RemoteAttempts* attempts = nullptr;  ///< while the process lives
};

/// A connection of a relay. Frames arrive in order, and wait while the node is cut off.
struct Connection {
    std::uint32_t node = 0;
    std::string name;
    std::weak_ptr<Process> relay;
    std::weak_ptr<Process> service;
    bool relay_open = false;
    bool service_open = false;
    bool forgets_end = false;  ///< the service is not told that the relay's end is gone
    std::deque<WebSocketMessage> to_relay;
    std::deque<std::string> to_service;
    std::deque<WebSocketMessage> inbox;  ///< of the relay
    std::unique_ptr<Condition> came;     ///< on the relay's executor; null: its end is gone
    WebSocket::Opened opened{};
    bool answered = false;
    bool broken = false;       ///< for the relay
    std::uint64_t number = 0;  ///< of the port
    std::weak_ptr<AttemptPort> port;
    std::shared_ptr<boost::asio::cancellation_signal> writing;  ///< ends what sends for the service
};
using ConnectionPtr = std::shared_ptr<Connection>;

class Network {
  public:
    Network(Stage& stage, StoreDisk& disk) : stage_(stage), disk_(disk) {}

    void serve(Door door) { door_ = std::move(door); }
    /// The process is gone: its kernel resets its connections.
    void service_ended();

    /// A socket of a relay on that node, not yet open.
    std::shared_ptr<WebSocket> socket(const std::shared_ptr<Process>& relay, std::uint32_t node);

    void cut(std::uint32_t node, Millis length);
    [[nodiscard]] bool is_cut(std::uint32_t node) const;
    /// The relay's ends of the node's connections break, and the service does not hear of it.
    void break_silently(std::uint32_t node);
    /// A stopped relay answers no ping.
    void watch_stopped(const std::shared_ptr<Process>& relay);

    // For the sockets.
    void dial(const ConnectionPtr& connection, const std::string& token);
    void send_to_service(const ConnectionPtr& connection, std::string text);
    void relay_end_gone(const ConnectionPtr& connection);

  private:
    void arrive(const ConnectionPtr& connection, const std::string& token, Millis since);
    void ask_door(const ConnectionPtr& connection, const std::string& token);
    void answer(const ConnectionPtr& connection, WebSocket::Opened opened);
    void accept(const ConnectionPtr& connection, const std::shared_ptr<AttemptPort>& port);
    boost::asio::awaitable<void> write_frames(ConnectionPtr connection, std::shared_ptr<AttemptPort> port);
    void send_to_relay(const ConnectionPtr& connection, WebSocketMessage message);
    void check_acknowledged(const Connection& connection, const std::string& frame);
    void deliver_to_service(const ConnectionPtr& connection);
    void deliver_to_relay(const ConnectionPtr& connection);
    void break_relay_end(const ConnectionPtr& connection);
    void break_service_end(const ConnectionPtr& connection);
    /// On the service's executor.
    static void end_at_service(const ConnectionPtr& connection);
    /// Runs `work` when packets of the node pass again.
    void when_linked(std::uint32_t node, Millis delay, std::function<void()> work);

    Stage& stage_;
    StoreDisk& disk_;
    Door door_;
    std::map<std::uint32_t, Millis> cut_until_;
    std::vector<std::weak_ptr<Connection>> connections_;
    std::uint64_t dialled_ = 0;
};

}  // namespace distilld::test
