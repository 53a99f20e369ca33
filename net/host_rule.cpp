#include "net/host_rule.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address_v6.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/ascii.hpp"

namespace distilld {
namespace {

namespace ip = boost::asio::ip;

constexpr unsigned kMappedBits = 96;  // in front of an IPv4 address in an IPv6 one

constexpr std::string_view kMetadataNames[] = {
    "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
};

/// Ranges refused by default: link-local addresses, and metadata services outside them.
struct Range {
    const char* address;
    unsigned prefix;
};
constexpr Range kDangerous[] = {
    {"::ffff:169.254.0.0", kMappedBits + 16},  // also of Amazon's, Google's, Microsoft's and Oracle's metadata
    {"fe80::", 10},
    {"fd00:ec2::", 32},               // Amazon's over IPv6
    {"fd20:ce::254", 128},            // Google's
    {"fd00:100::100:200", 128},       // Alibaba's over IPv6
    {"fd00:c1::a9fe:a9fe", 128},      // Oracle's over IPv6
    {"fd00:42::42", 128},             // Scaleway's over IPv6
    {"fd00:a9fe:a9fe::1", 128},       // Akamai's over IPv6
    {"::ffff:100.100.100.200", 128},  // Alibaba's
    {"::ffff:192.0.0.192", 128},      // Oracle's, the older
    {"::ffff:168.63.129.16", 128},    // Azure's, which also gives machines their goal state
};

/// Where an IPv6 address holds an IPv4 address that a gateway or tunnel would connect to.
struct Embedding {
    const char* address;
    unsigned prefix;
    std::array<std::uint8_t, 4> bytes;  ///< positions of the four bytes in the address
    std::uint8_t mask = 0;              ///< bits that are inverted in the bytes
};
constexpr Embedding kEmbeddings[] = {
    {"::", 96, {12, 13, 14, 15}},            // IPv4-compatible
    {"::ffff:0:0:0", 96, {12, 13, 14, 15}},  // IPv4-translated (RFC 2765)
    {"64:ff9b::", 96, {12, 13, 14, 15}},     // NAT64, the well-known prefix (RFC 6052)
    {"64:ff9b:1::", 48, {6, 7, 9, 10}},      // local-use NAT64 (RFC 8215); its prefix may have 48, 56, 64 or 96 bits
    {"64:ff9b:1::", 48, {7, 9, 10, 11}},    {"64:ff9b:1::", 48, {9, 10, 11, 12}},
    {"64:ff9b:1::", 48, {12, 13, 14, 15}},  {"2002::", 16, {2, 3, 4, 5}},  // 6to4
    {"2001::", 32, {4, 5, 6, 7}},                                          // Teredo: its server
    {"2001::", 32, {12, 13, 14, 15}, 0xff},                                // and its client
};

std::string lower(std::string_view text) {
    std::string result = ascii_lower(text);
    while (result.ends_with('.')) {
        result.pop_back();
    }
    return result;
}

template <class Number>
std::optional<Number> number_of(std::string_view text, Number max) {
    const auto number = number_from<Number>(text);
    return number && *number <= max ? number : std::nullopt;
}

bool same_prefix(const ip::address_v6& one, const ip::address_v6& other, unsigned bits) {
    const auto length = static_cast<unsigned short>(bits);
    return ip::network_v6(one, length).network() == ip::network_v6(other, length).network();
}

bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= 253 && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
    });
}

/// Whether a range or an embedding is a prefix of the address.
template <class Prefixed>
bool lies_in(const std::array<std::uint8_t, 16>& address, const Prefixed& range) {
    return same_prefix(ip::address_v6(address), ip::make_address_v6(range.address), range.prefix);
}

}  // namespace

std::vector<std::array<std::uint8_t, 4>> embedded_ipv4(const std::array<std::uint8_t, 16>& address) {
    std::vector<std::array<std::uint8_t, 4>> found;
    for (const Embedding& embedding : kEmbeddings) {
        if (lies_in(address, embedding)) {
            auto& four = found.emplace_back();
            for (std::size_t i = 0; i < four.size(); ++i) {
                four[i] = static_cast<std::uint8_t>(address[embedding.bytes[i]] ^ embedding.mask);
            }
        }
    }
    return found;
}

/// Also IPv4 addresses as inet_aton(3) takes them (2852039166, 0xa9.0xfe.1): the system's resolver does too.
std::optional<HostRule::Bytes> HostRule::read_address(const std::string& text) {
    Bytes bytes{};
    const std::string plain = text.substr(0, text.find('%'));  // a zone names the link, not the address
    if (::inet_pton(AF_INET6, plain.c_str(), bytes.data()) == 1) {
        return bytes;
    }
    in_addr four{};
    if (text.find_first_of(" \t") == std::string::npos && ::inet_aton(text.c_str(), &four) != 0) {
        bytes[10] = bytes[11] = 0xff;
        std::memcpy(&bytes[12], &four, sizeof four);
        return bytes;
    }
    return std::nullopt;
}

bool HostRule::covers(const Pattern& pattern, const Bytes& address) {
    return pattern.name.empty() &&
           same_prefix(ip::address_v6(pattern.address), ip::address_v6(address), pattern.prefix);
}

bool HostRule::is_dangerous(const Bytes& address) {
    const auto is_listed = [](const Bytes& judged) {
        return std::ranges::any_of(kDangerous, [&](const Range& range) { return lies_in(judged, range); });
    };
    return is_listed(address) || std::ranges::any_of(embedded_ipv4(address), [&](const auto& four) {
               Bytes mapped{};
               mapped[10] = mapped[11] = 0xff;
               std::ranges::copy(four, mapped.begin() + 12);
               return is_listed(mapped);
           });
}

Result<HostRule::Pattern> HostRule::read(const std::string& text) {
    const auto wrong = [&text](const char* why) {
        return invalid_input("'" + text + "' is not a valid teacher host: " + why +
                             "; expected NAME, *.NAME, ADDRESS or ADDRESS/BITS, with or without :PORT");
    };
    Pattern pattern;
    std::string host = text;
    const auto colon = text.rfind(':');
    const bool bracket = text.starts_with('[');
    const auto close = text.find(']');
    if (bracket && close == std::string::npos) {
        return wrong("a bracket is not closed");
    }
    const bool bare_v6 = !bracket && std::ranges::count(text, ':') > 1;
    if (colon != std::string::npos && !bare_v6 && (!bracket || colon > close)) {
        const auto port = number_of<std::uint16_t>(std::string_view(text).substr(colon + 1), 65535);
        if (!port || *port == 0) {
            return wrong("the port is not between 1 and 65535");
        }
        pattern.port = port;
        host = text.substr(0, colon);
    }
    if (bracket) {
        host = host.substr(1, close - 1) + host.substr(close + 1);  // "[fd00::]/8"
    }
    const auto slash = host.find('/');
    if (auto address = read_address(host.substr(0, slash))) {
        pattern.address = *address;
        if (slash != std::string::npos) {
            const bool four = host.find(':') == std::string::npos;
            const auto bits = number_of<unsigned>(std::string_view(host).substr(slash + 1), four ? 32 : 128);
            if (!bits) {
                return wrong("the number of bits is missing or too large");
            }
            pattern.prefix = *bits + (four ? kMappedBits : 0);
        }
        return pattern;
    }
    host = lower(host);
    pattern.name = host.starts_with("*.") ? host.substr(1) : host;
    if (!is_name(pattern.name) || pattern.name == ".") {
        return wrong("it is neither a name nor an address");
    }
    return pattern;
}

Result<HostRule> HostRule::make(const std::vector<std::string>& patterns) {
    HostRule rule;
    for (const std::string& text : patterns) {
        if (text.empty()) {
            continue;
        }
        auto pattern = read(text);
        if (!pattern) {
            return pattern.error();
        }
        rule.patterns_.push_back(std::move(*pattern));
        rule.texts_.push_back(text);
    }
    return rule;
}

Result<HostRule> HostRule::parse(std::string_view list) {
    std::vector<std::string> patterns;
    while (!list.empty()) {
        const auto end = std::min(list.find(','), list.size());
        patterns.emplace_back(list.substr(0, end));
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return make(patterns);
}

bool HostRule::names(std::string_view host, std::uint16_t port) const {
    const std::string name = lower(host);
    return std::ranges::any_of(patterns_, [&](const Pattern& pattern) {
        if (pattern.name.empty() || pattern.port.value_or(port) != port) {
            return false;
        }
        return pattern.name.starts_with('.') ? name.ends_with(pattern.name) && name.size() > pattern.name.size()
                                             : name == pattern.name;
    });
}

bool HostRule::has_ranges(std::uint16_t port) const {
    return std::ranges::any_of(patterns_, [port](const Pattern& pattern) {
        return pattern.name.empty() && pattern.port.value_or(port) == port;
    });
}

/// `named`: a pattern names the host. That does not allow a dangerous address, as a name may have any address; nor does
/// a range that holds others too (0.0.0.0/0).
std::optional<std::string> HostRule::judge_address(const std::string& what, const Bytes& address, std::uint16_t port,
                                                   bool named) const {
    const bool listed = std::ranges::any_of(patterns_, [&](const Pattern& pattern) {
        return pattern.port.value_or(port) == port && covers(pattern, address) &&
               (!is_dangerous(address) || is_dangerous(pattern.address));
    });
    if (listed) {
        return std::nullopt;
    }
    if (is_dangerous(address)) {
        return what + " is a link-local or cloud-metadata address, which is not allowed as a teacher host";
    }
    if (!patterns_.empty() && !named) {
        return what + " is not an allowed teacher host (distilld serve --teacher-host)";
    }
    return std::nullopt;
}

std::optional<std::string> HostRule::refusal(std::string_view host, std::uint16_t port) const {
    const std::string what = "'" + std::string(host) + "'";
    if (const auto address = read_address(std::string(host))) {
        return judge_address(what, *address, port, false);
    }
    if (names(host, port)) {
        return std::nullopt;
    }
    if (std::ranges::find(kMetadataNames, lower(host)) != std::end(kMetadataNames)) {
        return what + " is a cloud-metadata address, which is not allowed as a teacher host";
    }
    if (!patterns_.empty() && !has_ranges(port)) {
        return what + " is not an allowed teacher host (distilld serve --teacher-host)";
    }
    return std::nullopt;
}

std::optional<std::string> HostRule::refusal(std::string_view host, std::uint16_t port,
                                             std::string_view address) const {
    if (auto by_name = refusal(host, port)) {
        return by_name;
    }
    const auto bytes = read_address(std::string(address));
    if (!bytes) {
        return "'" + std::string(address) + "' is not an address";
    }
    return judge_address("'" + std::string(host) + "' (" + std::string(address) + ")", *bytes, port, names(host, port));
}

}  // namespace distilld
