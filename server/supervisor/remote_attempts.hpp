#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/web_socket.hpp"

namespace distilld {

/// Codes with which the service ends the connection of a relay (RFC 6455: 4000 to 4999 are ours).
inline constexpr std::uint16_t kAttemptOver = 4000;         ///< the worker, if any, must end: do not come back
inline constexpr std::uint16_t kConnectionReplaced = 4001;  ///< by a newer one of the same attempt
inline constexpr std::uint16_t kLinkBroken = 4002;          ///< the peer talks nonsense

/// The code of the service's refusal (401) of a token that is not, or no longer, in use.
inline constexpr const char* kUnknownAttempt = "unknown_attempt";

/// The path at which relays connect.
inline constexpr const char* kAttemptChannelPath = "/v1/attempts/channel";

/// The service's end of one attempt's link. Call everything on its executor.
class AttemptPort {
  public:
    virtual ~AttemptPort() = default;
    [[nodiscard]] virtual boost::asio::any_io_executor executor() const = 0;

    /// A relay has connected; returns the connection's number. The one before is ended.
    virtual std::uint64_t connect() = 0;
    /// A frame has come; a value ends the connection.
    virtual std::optional<WebSocketClose> take(std::uint64_t connection, std::string frame) = 0;
    /// Waits for the next frame to send; with `closed`, the connection ends instead.
    virtual boost::asio::awaitable<WebSocketMessage> next(std::uint64_t connection) = 0;
    virtual void disconnect(std::uint64_t connection) = 0;
};

/// What is counted of the links to relays since the service started.
struct LinkCounts {
    std::uint64_t connections = 0;     ///< that were opened
    std::uint64_t reconnects = 0;      ///< of those, by a relay that had been connected before
    std::uint64_t connected = 0;       ///< relays that are connected now
    std::uint64_t unacknowledged = 0;  ///< messages that wait for the acknowledgement of a relay
};

/// The attempts that are under way in other places, by the hashes of their tokens. Any thread.
class RemoteAttempts {
  public:
    void add(std::string token_hash, std::shared_ptr<AttemptPort> port);
    void remove(const std::string& token_hash);
    /// Null: unknown. Takes the same time for each hash.
    [[nodiscard]] std::shared_ptr<AttemptPort> find(const std::string& token_hash) const;

    /// From now on, an unknown attempt is over: those of the last run of the service are here.
    void complete();
    [[nodiscard]] bool is_complete() const;

    [[nodiscard]] LinkCounts counts() const;
    /// `change` is called with the counts under the lock.
    template <class Change>
    void update(Change change) {
        const std::lock_guard guard(mutex_);
        change(counts_);
    }

  private:
    mutable std::mutex mutex_;
    LinkCounts counts_;
    std::vector<std::pair<std::string, std::shared_ptr<AttemptPort>>> ports_;
    bool complete_ = false;
};

}  // namespace distilld
