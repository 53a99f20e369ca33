#include "pipeline/graph/space_wait.hpp"

#include <algorithm>
#include <utility>

#include "base/span_text.hpp"
#include "base/unix_time.hpp"
#include "pipeline/async/run_on.hpp"

namespace distilld {

namespace asio = boost::asio;

SpaceWait::SpaceWait(asio::any_io_executor io, std::function<void(const WorkerEvent&)> emit,
                     std::chrono::milliseconds pause)
    : emit_(std::move(emit)), pause_(pause), changed_(std::move(io)) {}

asio::awaitable<Result<std::string>> SpaceWait::perform(asio::any_io_executor disk,
                                                        std::function<Result<std::string>()> attempt) {
    for (;;) {
        Result<std::string> done = co_await run_on(disk, attempt);
        const bool full = !done && done.error().kind == ErrorKind::disk_full;
        if (!full || given_up_) {
            end_wait(done.has_value());
            co_return done;
        }
        begin_wait(done.error());
        const auto again = std::chrono::steady_clock::now() + pause_;
        while (!given_up_ && std::chrono::steady_clock::now() < again) {
            co_await changed_.wait(again);
        }
        if (given_up_) {
            end_wait(false);
            co_return done;
        }
    }
}

void SpaceWait::give_up() {
    given_up_ = true;
    changed_.notify();
}

void SpaceWait::begin_wait(const Error& error) {
    if (std::exchange(waiting_, true) || !emit_) {
        return;
    }
    WaitingEvent event;
    event.code = to_string(ErrorKind::disk_full);
    event.message = error.message + "; the run waits and continues by itself";
    event.since = unix_now();
    began_ = event.since;
    emit_(event);
}

void SpaceWait::end_wait(bool written) {
    if (std::exchange(waiting_, false) && emit_) {
        const std::string after = span_text(from_seconds(std::max(0.0, unix_now() - began_)));
        emit_(WaitingEvent{"", written ? "the disk has space again, after " + after : "", 0});
    }
}

}  // namespace distilld
