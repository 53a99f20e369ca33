#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Slots for requests within ConcurrencyLimits, for a source with several requests per fetch. Those who wait get them
/// in the order in which they came, as far as the limits of their endpoints allow. One executor.
class RequestSlots {
  public:
    RequestSlots(boost::asio::any_io_executor executor, ConcurrencyLimits limits);
    RequestSlots(const RequestSlots&) = delete;
    RequestSlots& operator=(const RequestSlots&) = delete;

    /// Taken until its destructor, which hands it to the next who waits.
    class Slot {
      public:
        Slot(Slot&& other) noexcept;
        Slot& operator=(Slot&&) = delete;
        ~Slot();

      private:
        friend class RequestSlots;
        Slot(RequestSlots& slots, std::size_t endpoint);

        RequestSlots* slots_;
        std::size_t endpoint_;
    };

    /// Waits for a slot of the endpoint. One request is always allowed. Throws operation_aborted when cancelled.
    boost::asio::awaitable<Slot> take(std::size_t endpoint);

    void set_limits(ConcurrencyLimits limits);

  private:
    struct Waiter;

    std::uint32_t& of(std::size_t endpoint);
    [[nodiscard]] bool has_room() const;
    [[nodiscard]] bool has_room(std::size_t endpoint);
    /// Gives free slots to those who wait. Afterwards nobody waits for whom there is room.
    void hand_out();

    boost::asio::any_io_executor executor_;
    ConcurrencyLimits limits_;
    std::list<Waiter*> waiting_;
    std::uint32_t in_flight_ = 0;
    std::vector<std::uint32_t> of_endpoint_;
};

}  // namespace distilld
