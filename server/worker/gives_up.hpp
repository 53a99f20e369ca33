#pragma once

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_type.hpp>

#include "pipeline/graph/space_wait.hpp"
#include "server/worker/orders.hpp"

namespace distilld {

/// During its lifetime, cancelling the run ends the wait for space. Takes the run's cancel slot.
class GivesUp {
  public:
    GivesUp(RunControl& control, SpaceWait& space) : slot_(control.cancel_slot()) {
        if (control.cancelled()) {
            space.give_up();
        }
        slot_.assign([&space](boost::asio::cancellation_type) { space.give_up(); });
    }
    ~GivesUp() { slot_.clear(); }
    GivesUp(const GivesUp&) = delete;
    GivesUp& operator=(const GivesUp&) = delete;

  private:
    boost::asio::cancellation_slot slot_;
};

}  // namespace distilld
