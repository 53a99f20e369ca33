#include "models/ranks/meeting_point.hpp"

#ifdef DISTILLD_WITH_GLOO

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

namespace distilld::models {

namespace {

using c10d::ProcessGroupGloo;
using std::chrono::milliseconds;

constexpr milliseconds kStoreTimeout{10'000};
/// c10d looks the peer's name up while it connects, which takes 5 s and more where no name server answers.
constexpr milliseconds kFirstConnectTimeout{2'000};
constexpr milliseconds kLastConnectTimeout{30'000};

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Of the meeting point; null if its name is not known.
Addresses addresses_of(const RankPlace& place, int type) {
    addrinfo hints{};
    hints.ai_socktype = type;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(place.port);
    if (::getaddrinfo(place.host.c_str(), port.c_str(), &hints, &found) != 0) {
        found = nullptr;
    }
    return {found, &::freeaddrinfo};
}

/// The address of this machine that others reach it by: the one from which it reaches the meeting point.
std::string own_address(const RankPlace& place) {
    const Addresses found = addresses_of(place, SOCK_DGRAM);
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
        const int socket = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_storage address{};
        socklen_t size = sizeof(address);
        std::array<char, NI_MAXHOST> name{};
        // Sends nothing.
        const bool known = socket >= 0 && ::connect(socket, one->ai_addr, one->ai_addrlen) == 0 &&
                           ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                           ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, name.data(), name.size(),
                                         nullptr, 0, NI_NUMERICHOST) == 0;
        if (socket >= 0) {
            ::close(socket);
        }
        if (known) {
            return name.data();
        }
    }
    return "127.0.0.1";
}

/// A socket that listens at the meeting point's address only: left to itself, the store would at all addresses of the
/// machine. nullopt: none of them is the machine's, as with the name of a Kubernetes service.
std::optional<int> listen_at(const RankPlace& place) {
    const Addresses found = addresses_of(place, SOCK_STREAM);
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
        const int socket = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int yes = 1;
        if (socket >= 0 && ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
            ::bind(socket, one->ai_addr, one->ai_addrlen) == 0 && ::listen(socket, SOMAXCONN) == 0) {
            return socket;
        }
        if (socket >= 0) {
            ::close(socket);
        }
    }
    return std::nullopt;
}

/// nullopt: no socket that is connected over IP.
std::optional<std::uint16_t> port_of_peer(int socket) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
        return std::nullopt;
    }
    switch (peer.ss_family) {
        case AF_INET:
            return ntohs(reinterpret_cast<const sockaddr_in&>(peer).sin_port);
        case AF_INET6:
            return ntohs(reinterpret_cast<const sockaddr_in6&>(peer).sin6_port);
        default:
            return std::nullopt;
    }
}

template <class Value>
void set_option(int socket, int level, int option, const Value& value) {
    ::setsockopt(socket, level, option, &value, sizeof(value));
}

c10::intrusive_ptr<c10d::Store> try_to_open_store(const RankPlace& place, bool serves, milliseconds timeout) {
    c10d::TCPStoreOptions options;
    options.port = place.port;
    options.isServer = serves;
    if (serves) {
        options.masterListenFd = listen_at(place);
    }
    options.waitWorkers = false;
    options.timeout = timeout;
    auto store = c10::make_intrusive<c10d::TCPStore>(place.host, options);
    store->setTimeout(kStoreTimeout);
    return c10::make_intrusive<c10d::PrefixStore>("distilld/" + std::to_string(place.attempt), std::move(store));
}

}  // namespace

std::shared_ptr<gloo::transport::Device> device_for(const RankPlace& place) {
    const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
    if (interfaces != nullptr && *interfaces != '\0') {
        const std::string all = interfaces;
        return ProcessGroupGloo::createDeviceForInterface(all.substr(0, all.find(',')));
    }
    return ProcessGroupGloo::createDeviceForHostname(own_address(place));
}

c10::intrusive_ptr<c10d::Store> open_store(const RankPlace& place, bool serves,
                                           std::chrono::steady_clock::time_point deadline,
                                           const std::function<bool()>& cancelled) {
    milliseconds timeout = serves ? kLastConnectTimeout : kFirstConnectTimeout;
    while (!cancelled || !cancelled()) {
        try {
            return try_to_open_store(place, serves, timeout);
        } catch (const std::exception&) {
            if (serves || std::chrono::steady_clock::now() >= deadline) {
                throw;
            }
        }
        timeout = std::min(2 * timeout, kLastConnectTimeout);
    }
    return {};
}

std::set<int> connected_sockets() {
    std::set<int> connected;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int socket = std::stoi(file.path().filename());
        if (port_of_peer(socket)) {
            connected.insert(socket);
        }
    }
    return connected;
}

void limit_silence(const std::set<int>& others, milliseconds limit) {
    // A probe every fourth of the limit while nothing is sent. The limit counts for probes and for unanswered bytes.
    const int probe = std::max(1, static_cast<int>(limit.count() / 4'000));
    for (const int socket : connected_sockets()) {
        if (!others.contains(socket)) {
            set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
            set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, probe);
            set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, probe);
            set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, std::max(1'000, static_cast<int>(limit.count())));
        }
    }
}

void limit_waits(const RankPlace& place) {
    for (const int socket : connected_sockets()) {
        if (port_of_peer(socket) == place.port) {
            const timeval limit{std::chrono::duration_cast<std::chrono::seconds>(kStoreTimeout).count(), 0};
            set_option(socket, SOL_SOCKET, SO_RCVTIMEO, limit);
            set_option(socket, SOL_SOCKET, SO_SNDTIMEO, limit);
        }
    }
}

}  // namespace distilld::models

#endif
