#pragma once

#include <boost/asio/ip/address.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.hpp"
#include "api/problem.hpp"
#include "base/error.hpp"
#include "server/http/http_server.hpp"

namespace distilld::http {

/// What is known of a request before its body is read.
struct RequestHead {
    const api::Request& request;  ///< method, path and headers are there
    std::string_view authority;   ///< of a target in absolute form; empty = none
    const Route* route = nullptr;
    bool has_body = false;
    bool open = false;  ///< it is for everybody, and no key is looked at
};

/// Refuses what a web page sends through the browser of somebody who can reach this server: the server has no keys, so
/// that being able to reach it is all that a request needs (docs/decisions/0006). Two ways are closed. A page whose own
/// name resolves to our address (DNS rebinding) names itself as Host: names are taken from a list. A page that posts
/// across sites is named by its Origin and by Sec-Fetch-Site. Immutable, any thread.
class RequestGate {
  public:
    /// Requests may name localhost, a loopback address, the host of `listen`, and `hosts`. When the server listens on
    /// all addresses (`bound` is unspecified) any address may be named, for which of them are ours behind a port
    /// mapping cannot be known here, and no page can take an address for its name. An error for what is no name of a
    /// host.
    static Result<RequestGate> make(const std::string& listen_host, const boost::asio::ip::address& bound,
                                    const std::vector<std::string>& hosts);

    /// 421 for a Host that is not known, 403 for what another site sends and would change something, 415 for a body of
    /// another type than its route takes.
    [[nodiscard]] std::optional<api::Problem> refusal(const RequestHead& head) const;

  private:
    [[nodiscard]] bool knows(std::string_view authority) const;
    [[nodiscard]] std::optional<std::string> foreign_host(const RequestHead& head) const;

    std::set<std::string> names_;  ///< lower case; addresses as Asio writes them
    bool any_address_ = false;
};

}  // namespace distilld::http
