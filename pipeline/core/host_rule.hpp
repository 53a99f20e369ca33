#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Environment variable with the hosts where teachers may be, as HostRule takes them, with commas between them.
inline constexpr const char* kTeacherHostsVariable = "DISTILLD_TEACHER_HOSTS";

/// The IPv4 addresses, four bytes each, that a gateway or a tunnel on the way to an IPv6 address would connect to:
/// NAT64, 6to4, Teredo and their like. Most addresses hold none. One mapped into IPv6 (::ffff:a.b.c.d) is not meant:
/// that is the address itself.
[[nodiscard]] std::vector<std::array<std::uint8_t, 4>> embedded_ipv4(const std::array<std::uint8_t, 16>& address);

/// Which servers a job may talk to. Link-local addresses and what clouds serve the credentials of a machine at are
/// refused, whatever their spelling, unless a pattern names them. Immutable, any thread.
///
/// Patterns are HOST or HOST:PORT, HOST being a name, a name behind "*." (any name that ends so), an address ([v6]
/// where a port follows), or a range of addresses (10.0.0.0/8). With patterns, all else is refused.
class HostRule {
  public:
    HostRule() = default;

    /// invalid_input names the pattern that is none. Empty texts are skipped.
    [[nodiscard]] static Result<HostRule> make(const std::vector<std::string>& patterns);
    /// The same of patterns with commas between them.
    [[nodiscard]] static Result<HostRule> parse(std::string_view list);

    /// Why the host of a URL (an IPv6 address without brackets) is refused, as far as that is known before its name is
    /// resolved. Nothing: it is not.
    [[nodiscard]] std::optional<std::string> refusal(std::string_view host, std::uint16_t port) const;

    /// The same once it is resolved: whether a connection to this address may be made.
    [[nodiscard]] std::optional<std::string> refusal(std::string_view host, std::uint16_t port,
                                                     std::string_view address) const;

    [[nodiscard]] const std::vector<std::string>& patterns() const noexcept { return texts_; }

  private:
    using Bytes = std::array<std::uint8_t, 16>;  ///< IPv4 as IPv6 has it, ::ffff:a.b.c.d
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
