#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Places for requests, as many as ConcurrencyLimits allows: for a source that makes several of one fetch. One
/// executor.
class RequestSlots {
  public:
    RequestSlots(boost::asio::any_io_executor executor, ConcurrencyLimits limits)
        : limits_(std::move(limits)), changed_(std::move(executor)) {}

    /// Given back when it goes.
    class Slot {
      public:
        Slot(RequestSlots& slots, std::size_t endpoint) : slots_(slots), endpoint_(endpoint) {
            ++slots_.in_flight_;
            ++slots_.of(endpoint_);
        }
        ~Slot() {
            --slots_.in_flight_;
            --slots_.of(endpoint_);
            slots_.changed_.notify();
        }
        Slot(const Slot&) = delete;
        Slot& operator=(const Slot&) = delete;

      private:
        RequestSlots& slots_;
        std::size_t endpoint_;
    };

    /// Waits until there is a place for a request to the endpoint; make the Slot at once. One is always let through.
    boost::asio::awaitable<void> free(std::size_t endpoint) {
        while (in_flight_ >= std::max(1U, limits_.all) || of(endpoint) >= limit_of(endpoint)) {
            co_await changed_.wait();
        }
    }

    void set_limits(ConcurrencyLimits limits) {
        limits_ = std::move(limits);
        changed_.notify();
    }

  private:
    std::uint32_t& of(std::size_t endpoint) {
        if (endpoint >= of_endpoint_.size()) {
            of_endpoint_.resize(endpoint + 1, 0);
        }
        return of_endpoint_[endpoint];
    }
    [[nodiscard]] std::uint32_t limit_of(std::size_t endpoint) const {
        const bool known = endpoint < limits_.of_endpoint.size();
        return std::max(1U, known ? limits_.of_endpoint[endpoint] : limits_.all);
    }

    ConcurrencyLimits limits_;
    Condition changed_;
    std::uint32_t in_flight_ = 0;
    std::vector<std::uint32_t> of_endpoint_;
};

}  // namespace distilld
