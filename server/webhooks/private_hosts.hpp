#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

#include "net/host_resolver.hpp"

namespace distilld::webhooks {

/// Whether an address is internal: loopback, link-local (including cloud metadata), private, shared or unspecified, or
/// embeds such an IPv4 address (embedded_ipv4()).
[[nodiscard]] bool is_private(const boost::asio::ip::address& address);

/// Resolves a name and refuses private addresses, so that a public name cannot point inside, except for `allowed` and
/// localhost. URLs with an address are not resolved.
[[nodiscard]] HostLookup public_lookup(std::vector<std::string> allowed, HostLookup lookup = look_up_host);

}  // namespace distilld::webhooks
