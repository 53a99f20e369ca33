#include "server/security/key_doorkeeper.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "api/problem.hpp"

namespace distilld {
namespace {

using api::Role;

constexpr std::string_view kChallenge = "Bearer realm=\"distilld\"";

/// The secret of "Bearer SECRET"; nothing for another scheme, or more than one such header.
std::optional<std::string_view> bearer_of(const api::Request& request) {
    constexpr std::string_view kScheme = "bearer ";
    const auto lower = [](unsigned char c) { return static_cast<char>(std::tolower(c)); };
    std::optional<std::string_view> found;
    for (const auto& [name, value] : request.headers) {
        if (!std::ranges::equal(std::string_view("authorization"), name, {}, {}, lower)) {
            continue;
        }
        const std::string_view text(value);
        if (found || !std::ranges::equal(kScheme, text.substr(0, kScheme.size()), {}, {}, lower)) {
            return std::nullopt;
        }
        found = text.substr(std::min(text.find_first_not_of(' ', kScheme.size()), text.size()));
    }
    return found;
}

bool has_authorization(const api::Request& request) {
    return request.header("authorization").has_value();
}

Role needed_by(const http::RequestHead& head) {
    if (head.route != nullptr && head.route->right == http::Right::admin) {
        return Role::admin;
    }
    const bool reads = head.request.method == "GET" || head.request.method == "HEAD";
    return reads ? Role::read : Role::submit;
}

api::Response refused(std::string path, unsigned status, std::string code, std::string detail,
                      api::Headers headers = {}) {
    api::Problem problem;
    problem.status = status;
    problem.code = std::move(code);
    problem.detail = std::move(detail);
    problem.instance = std::move(path);
    return api::to_response(problem, std::move(headers));
}

api::Response invalid_key(std::string path) {
    return refused(std::move(path), 401, "invalid_key", "this service does not have the key, or it was revoked",
                   {{"WWW-Authenticate", std::string(kChallenge) + ", error=\"invalid_token\""}});
}

class KeyDoorkeeper final : public http::Doorkeeper {
  public:
    KeyDoorkeeper(std::shared_ptr<KeyRing> keys, DoorkeeperOptions options)
        : keys_(std::move(keys)), options_(options) {}

    http::DoorVerdict judge(const http::RequestHead& head) override {
        http::DoorVerdict verdict;
        if (is_open(head) || !keys_->protects()) {
            return verdict;
        }
        const auto secret = bearer_of(head.request);
        if (!secret) {
            const bool given = has_authorization(head.request);
            verdict.refusal = refused(head.request.path, 401, given ? "invalid_key" : "missing_key",
                                      "a key of this service is needed: Authorization: Bearer KEY (distilld keys add "
                                      "makes one)",
                                      {{"WWW-Authenticate", std::string(kChallenge)}});
            return verdict;
        }
        verdict.caller = keys_->find(*secret);
        if (!verdict.caller) {
            verdict.refusal = invalid_key(head.request.path);
            return verdict;
        }
        const Role needed = needed_by(head);
        if (verdict.caller->role < needed) {
            verdict.refusal = refused(head.request.path, 403, "forbidden",
                                      "the key '" + verdict.caller->name + "' has the role " +
                                          to_string(verdict.caller->role) + ", and this takes " + to_string(needed));
        }
        return verdict;
    }

    std::optional<api::Response> revocation(const api::Caller& caller) override {
        return keys_->holds(caller) ? std::nullopt : std::optional(invalid_key({}));
    }

  private:
    [[nodiscard]] bool is_open(const http::RequestHead& head) const {
        return head.open || (options_.metrics_open && head.route != nullptr && head.route->pattern == "/metrics");
    }

    std::shared_ptr<KeyRing> keys_;
    DoorkeeperOptions options_;
};

}  // namespace

std::shared_ptr<http::Doorkeeper> make_key_doorkeeper(std::shared_ptr<KeyRing> keys, DoorkeeperOptions options) {
    return std::make_shared<KeyDoorkeeper>(std::move(keys), options);
}

}  // namespace distilld
