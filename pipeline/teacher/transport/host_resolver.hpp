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
#include "pipeline/core/host_rule.hpp"

namespace distilld {

using HostAddresses = std::vector<boost::asio::ip::address>;

/// Addresses of a host, in the order in which they are to be tried. Blocks; called on threads of the resolver's own.
using HostLookup = std::function<Result<HostAddresses>(const std::string& host)>;

/// The system's own lookup. Fails with ErrorKind::io.
[[nodiscard]] Result<HostAddresses> look_up_host(const std::string& host);

/// Turns names into addresses for any number of connections. The system's lookup cannot be interrupted, so it runs on a
/// thread that the resolver joins, and only the wait for it ends when the caller is cancelled or out of time. Callers
/// who want the same name at the same time share a lookup, and what it found is good for a moment. One executor, a
/// strand or with a single thread.
class HostResolver {
  public:
    /// `rule` says which of the hosts may be connected to.
    explicit HostResolver(boost::asio::any_io_executor io, HostLookup lookup = look_up_host,
                          std::chrono::nanoseconds good_for = std::chrono::seconds(10), HostRule rule = {});
    HostResolver(const HostResolver&) = delete;
    HostResolver& operator=(const HostResolver&) = delete;
    /// Waits for the lookups under way. Nobody may wait for one any more.
    ~HostResolver();

    /// Has no deadline of its own. Throws operation_aborted when cancelled, at once.
    boost::asio::awaitable<Result<HostAddresses>> resolve(std::string host);

    /// The addresses did not answer: they are asked for anew the next time.
    void forget(const std::string& host);

    [[nodiscard]] const HostRule& rule() const noexcept { return rule_; }

  private:
    struct State;
    std::shared_ptr<State> state_;
    HostRule rule_;
};

}  // namespace distilld
