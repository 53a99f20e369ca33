#include "server/webhooks/private_hosts.hpp"

#include <algorithm>
#include <boost/asio/ip/network_v4.hpp>
#include <utility>

#include "net/host_rule.hpp"

namespace distilld::webhooks {
namespace {

namespace ip = boost::asio::ip;

bool is_within(const ip::address_v4& address, const char* network) {
    const auto whole = ip::make_network_v4(network);
    return ip::network_v4(address, whole.prefix_length()).canonical() == whole;
}

}  // namespace

bool is_private(const ip::address& address) {
    if (address.is_v6()) {
        const auto v6 = address.to_v6();
        if (v6.is_v4_mapped()) {
            return is_private(ip::make_address_v4(ip::v4_mapped, v6));
        }
        const auto bytes = v6.to_bytes();
        const auto is_private_ipv4 = [](const auto& four) { return is_private(ip::address_v4(four)); };
        if (std::ranges::any_of(embedded_ipv4(bytes), is_private_ipv4)) {
            return true;
        }
        return v6.is_loopback() || v6.is_unspecified() || v6.is_link_local() || v6.is_site_local() ||
               v6.is_multicast() || (bytes[0] & 0xFEU) == 0xFC;  // fc00::/7
    }
    const auto v4 = address.to_v4();
    return std::ranges::any_of(
        std::initializer_list<const char*>{"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
                                           "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/3"},
        [&](const char* network) { return is_within(v4, network); });
}

HostLookup public_lookup(std::vector<std::string> allowed, HostLookup lookup) {
    allowed.emplace_back("localhost");
    return [allowed = std::move(allowed), lookup = std::move(lookup)](const std::string& host) {
        auto found = lookup(host);
        if (!found || std::ranges::find(allowed, host) != allowed.end()) {
            return found;
        }
        if (std::ranges::any_of(*found, is_private)) {
            found = invalid_input("it has a private address; --webhook-private-host " + host + " allows that");
        }
        return found;
    };
}

}  // namespace distilld::webhooks
