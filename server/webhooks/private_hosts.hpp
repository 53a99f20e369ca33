#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

#include "pipeline/teacher/transport/host_resolver.hpp"

namespace distilld::webhooks {

/// Whether an address is of this machine, its network or an operator's inside: loopback, link-local (where clouds keep
/// their metadata), private, shared or no place at all; or holds such an IPv4 address (embedded_ipv4()).
[[nodiscard]] bool is_private(const boost::asio::ip::address& address);

/// Looks a name up and refuses private addresses, so that a public name cannot be pointed inside; but of `allowed`, and
/// of localhost, which says itself that it is inside. URLs with an address in place of a name are not looked up.
[[nodiscard]] HostLookup public_lookup(std::vector<std::string> allowed, HostLookup lookup = look_up_host);

}  // namespace distilld::webhooks
