#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Environment variable with the hosts that teachers may have: patterns of HostRule, separated by commas.
inline constexpr const char* kTeacherHostsVariable = "DISTILLD_TEACHER_HOSTS";

/// The IPv4 addresses, four bytes each, that a gateway or tunnel on the way to an IPv6 address would connect to: NAT64,
/// 6to4, Teredo and the like. Most addresses hold none. An IPv4-mapped address (::ffff:a.b.c.d) does not count: that is
/// the address itself.
[[nodiscard]] std::vector<std::array<std::uint8_t, 4>> embedded_ipv4(const std::array<std::uint8_t, 16>& address);

/// The servers that a job may talk to. Link-local addresses and the clouds' metadata services, which serve a machine's
/// credentials, are refused in any spelling, unless a pattern names them. Immutable, any thread.
///
/// Patterns are HOST or HOST:PORT. HOST is a name, "*." and a name (any name that ends so), an address ([v6] if a port
/// follows), or a range of addresses (10.0.0.0/8). With patterns, all else is refused.
class HostRule {
  public:
    HostRule() = default;

    /// invalid_input names the malformed pattern. Empty texts are skipped.
    [[nodiscard]] static Result<HostRule> make(const std::vector<std::string>& patterns);
    /// The same for patterns separated by commas.
    [[nodiscard]] static Result<HostRule> parse(std::string_view list);

    /// Why the host of a URL (an IPv6 address without brackets) is refused, before its name is resolved. Empty: it is
    /// not refused.
    [[nodiscard]] std::optional<std::string> refusal(std::string_view host, std::uint16_t port) const;

    /// The same after resolution: whether this address may be connected to.
    [[nodiscard]] std::optional<std::string> refusal(std::string_view host, std::uint16_t port,
                                                     std::string_view address) const;

    [[nodiscard]] const std::vector<std::string>& patterns() const noexcept { return texts_; }

  private:
    using Bytes = std::array<std::uint8_t, 16>;  ///< IPv4 is IPv4-mapped, ::ffff:a.b.c.d
    struct Pattern {
        std::string name;  ///< lower case; "*.example.org" is ".example.org"; empty: an address
        Bytes address{};
        unsigned prefix = 128;  ///< bits of `address` that count
        std::optional<std::uint16_t> port;
    };
    static std::optional<Bytes> read_address(const std::string& text);
    static bool covers(const Pattern& pattern, const Bytes& address);
    static bool is_dangerous(const Bytes& address);
    static Result<Pattern> read(const std::string& text);
    [[nodiscard]] bool names(std::string_view host, std::uint16_t port) const;
    [[nodiscard]] bool has_ranges(std::uint16_t port) const;
    [[nodiscard]] std::optional<std::string> judge_address(const std::string& what, const Bytes& address,
                                                           std::uint16_t port, bool named) const;

    std::vector<Pattern> patterns_;
    std::vector<std::string> texts_;
};

}  // namespace distilld
