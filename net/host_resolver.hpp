#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "net/host_rule.hpp"

namespace distilld {

using HostAddresses = std::vector<boost::asio::ip::address>;

/// Addresses of a host, in the order to try them. Blocks; called on the resolver's own threads.
using HostLookup = std::function<Result<HostAddresses>(const std::string& host)>;

/// The system's own lookup. Fails with ErrorKind::io.
[[nodiscard]] Result<HostAddresses> look_up_host(const std::string& host);

/// Resolves names for any number of connections. The system's lookup cannot be interrupted, so it runs on a thread that
/// the resolver joins; a caller that is cancelled or out of time only stops waiting. Callers that want the same name at
/// the same time share a lookup, and its result is valid for a moment. One executor, a strand or with a single thread.
class HostResolver {
  public:
    /// `rule` decides which hosts may be connected to.
    explicit HostResolver(boost::asio::any_io_executor io, HostLookup lookup = look_up_host,
                          std::chrono::nanoseconds good_for = std::chrono::seconds(10), HostRule rule = {});
    HostResolver(const HostResolver&) = delete;
    HostResolver& operator=(const HostResolver&) = delete;
    /// Waits for running lookups. No caller may be waiting any more.
    ~HostResolver();

    /// Has no deadline of its own. Throws operation_aborted at once when cancelled.
    boost::asio::awaitable<Result<HostAddresses>> resolve(std::string host);

    /// The addresses did not answer: the next resolve() looks them up again.
    void forget(const std::string& host);

    [[nodiscard]] const HostRule& rule() const noexcept { return rule_; }

  private:
    struct State;
    std::shared_ptr<State> state_;
    HostRule rule_;
};

}  // namespace distilld
