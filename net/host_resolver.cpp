#include "net/host_resolver.hpp"

#include <netdb.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "pipeline/async/condition.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

/// One lookup, from its start until its answer is too old.
struct Lookup {
    explicit Lookup(const asio::any_io_executor& io) : done(io) {}
    Lookup(const Lookup&) = delete;
    Lookup& operator=(const Lookup&) = delete;
    ~Lookup() { join(); }

    void join() {
        if (thread.joinable()) {
            thread.join();
        }
    }

    std::thread thread;
    Condition done;
    std::optional<Result<HostAddresses>> result;
    Clock::time_point since;  ///< of the result
};

Result<HostAddresses> guarded(const HostLookup& lookup, const std::string& host) {
    try {
        return lookup(host);
    } catch (const std::exception& error) {
        return io_error(error.what());
    }
}

}  // namespace

struct HostResolver::State {
    asio::any_io_executor io;
    HostLookup lookup;
    std::chrono::nanoseconds good_for;
    std::map<std::string, std::shared_ptr<Lookup>> lookups;
    std::vector<std::shared_ptr<Lookup>> forgotten;  ///< running, but no longer wanted

    /// A lookup of the host that is running or valid.
    std::shared_ptr<Lookup> find(const std::string& host) {
        const auto found = lookups.find(host);
        if (found == lookups.end()) {
            return nullptr;
        }
        const Lookup& lookup_ = *found->second;
        if (lookup_.result && (!*lookup_.result || Clock::now() - lookup_.since >= good_for)) {
            lookups.erase(found);
            return nullptr;
        }
        return found->second;
    }
};

Result<HostAddresses> look_up_host(const std::string& host) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (failed != 0) {
        return io_error(failed == EAI_SYSTEM ? std::generic_category().message(errno) : ::gai_strerror(failed));
    }
    HostAddresses addresses;
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
        asio::ip::tcp::endpoint endpoint;
        if (entry->ai_addrlen <= endpoint.capacity()) {
            std::memcpy(endpoint.data(), entry->ai_addr, entry->ai_addrlen);
            endpoint.resize(entry->ai_addrlen);
            addresses.push_back(endpoint.address());
        }
    }
    ::freeaddrinfo(found);
    return addresses;
}

HostResolver::HostResolver(asio::any_io_executor io, HostLookup lookup, std::chrono::nanoseconds good_for,
                           HostRule rule)
    : state_(std::make_shared<State>()), rule_(std::move(rule)) {
    state_->io = std::move(io);
    state_->lookup = std::move(lookup);
    state_->good_for = good_for;
}

HostResolver::~HostResolver() {
    for (const auto& [host, lookup] : state_->lookups) {
        lookup->join();
    }
    for (const auto& lookup : state_->forgotten) {
        lookup->join();
    }
}

asio::awaitable<Result<HostAddresses>> HostResolver::resolve(std::string host) {
    State& state = *state_;
    std::erase_if(state.forgotten, [](const auto& one) { return one->result.has_value(); });
    std::shared_ptr<Lookup> lookup = state.find(host);
    if (!lookup) {
        lookup = std::make_shared<Lookup>(state.io);
        // The thread holds neither the lookup nor us: the lookup joins it.
        auto work = [found_by = state.lookup, host, io = state.io, waiting = std::weak_ptr<Lookup>(lookup)] {
            auto result = guarded(found_by, host);
            asio::post(io, [waiting, result = std::move(result)]() mutable {
                if (const auto there = waiting.lock()) {
                    there->result.emplace(std::move(result));
                    there->since = Clock::now();
                    there->done.notify();
                }
            });
        };
        try {
            lookup->thread = std::thread(std::move(work));
        } catch (const std::system_error& failed) {
            co_return io_error(std::string("cannot start a thread for the lookup: ") + failed.what());
        }
        state.lookups.insert_or_assign(host, lookup);
    }
    while (!lookup->result) {
        co_await lookup->done.wait();
    }
    co_return *lookup->result;
}

void HostResolver::forget(const std::string& host) {
    const auto found = state_->lookups.find(host);
    if (found == state_->lookups.end()) {
        return;
    }
    if (!found->second->result) {
        state_->forgotten.push_back(found->second);  // joined when we end
    }
    state_->lookups.erase(found);
}

}  // namespace distilld
