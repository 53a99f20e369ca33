#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "base/job_attempt.hpp"

namespace distilld {

/// What a relay (`distilld attempt`) needs to know.
struct RelayOrder {
    JobAttempt attempt;  ///< for names: the relay learns it from the service
    std::string token;   ///< secret: only the relay may read it
};

/// How a place has ended.
struct PlaceEnd {
    std::string kind;   ///< of the FailedEvent if the worker has not reported its end
    std::string words;  ///< the launcher's
};

/// Takes why a place is not there yet; empty: it is.
using PlaceWait = std::function<void(const std::string& why)>;

/// Where one attempt of a job runs outside of this process: its relay, and below that its worker. One executor.
class Place {
  public:
    virtual ~Place() = default;

    /// Asks for the relay, which may start much later. Returns the place's name, with which the launcher finds it again
    /// after a restart of the service. Once per attempt, so not for one that is adopted.
    virtual boost::asio::awaitable<Result<std::string>> begin(RelayOrder order) = 0;

    /// Before ended(): whom it tells, if it knows.
    virtual void tell_of_waits(PlaceWait /*waits*/) {}

    /// Returns once the place is gone for good, and not before, whatever fails meanwhile. After begin(). Cancellation
    /// throws operation_aborted.
    virtual boost::asio::awaitable<PlaceEnd> ended() = 0;

    /// Ends the place, now and by force, without waiting for that. Does nothing before begin() has returned.
    virtual void cancel() = 0;

    /// Nobody needs the token any more.
    virtual void forget() {}
};

}  // namespace distilld
