#include "server/cli/service_watchdog.hpp"

#include "pipeline/async/tuple.hpp"

namespace distilld::cli {

boost::asio::awaitable<void> ServiceWatchdog::run() {
    const auto interval = notifier_.watchdog();
    while (interval && !stopped_) {
        co_await ask_();
        notifier_.send("WATCHDOG=1");
        pause_.expires_after(*interval / 2);
        if (!stopped_) {
            co_await pause_.async_wait(kTuple);
        }
    }
}

void ServiceWatchdog::stop() {
    stopped_ = true;
    pause_.cancel();
}

}  // namespace distilld::cli
