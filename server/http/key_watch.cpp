#include "server/http/key_watch.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>

#include "pipeline/async/tuple.hpp"

namespace distilld::http {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::milliseconds kLookPause{500};

}  // namespace

asio::awaitable<void> until_revoked(std::shared_ptr<Doorkeeper> doorkeeper, api::Caller caller) {
    asio::steady_timer pause(co_await asio::this_coro::executor);
    while (!doorkeeper->revocation(caller)) {
        pause.expires_after(kLookPause);
        co_await pause.async_wait(kTuple);
    }
}

}  // namespace distilld::http
