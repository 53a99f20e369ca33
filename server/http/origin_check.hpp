#pragma once

#include <boost/asio/ip/address.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/problem.hpp"
#include "base/error.hpp"
#include "server/http/http_message.hpp"
#include "server/http/http_server.hpp"

namespace distilld::http {

/// What is known about a request before its body is read.
struct RequestHead {
    const http::Request& request;  ///< with method, path and headers
    std::string_view authority;    ///< from a target in absolute form; empty = none
    const Route* route = nullptr;
    bool has_body = false;
    bool open = false;  ///< open to all; no key is checked
};

/// Refuses requests that a web page sends through the browser of someone who can reach this server. Without keys,
/// reaching the server is all that a request needs (docs/decisions/0006). Two ways are closed. A page that resolves its
/// own name to our address (DNS rebinding) sends that name as Host: only listed names pass. A page that posts across
/// sites shows in Origin and Sec-Fetch-Site. Immutable, any thread.
class OriginCheck {
  public:
    /// Requests may name localhost, a loopback address, the host of `listen`, and `hosts`. If the server listens on all
    /// addresses (`bound` is unspecified), any address passes: behind a port mapping the server does not know its own
    /// addresses, and a page cannot have an address as its name. An error if an entry of `hosts` is not a host.
    static Result<OriginCheck> make(const std::string& listen_host, const boost::asio::ip::address& bound,
                                    const std::vector<std::string>& hosts);

    /// 421 for an unknown Host, 403 for a change that another site requests, 415 if the route does not take the type of
    /// the body.
    [[nodiscard]] std::optional<api::Problem> refusal(const RequestHead& head) const;

  private:
    [[nodiscard]] bool knows(std::string_view authority) const;
    [[nodiscard]] std::optional<std::string> foreign_host(const RequestHead& head) const;

    std::set<std::string> names_;  ///< lower case; addresses in Asio's notation
    bool any_address_ = false;
};

}  // namespace distilld::http
