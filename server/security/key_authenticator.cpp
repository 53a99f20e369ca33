#include "server/security/key_authenticator.hpp"

#include <string_view>
#include <utility>

#include "api/problem.hpp"
#include "server/security/bearer.hpp"

namespace distilld {
namespace {

using http::Role;

constexpr std::string_view kChallenge = "Bearer realm=\"distilld\"";

Role needed_by(const http::RequestHead& head) {
    if (head.route != nullptr && head.route->right == http::Right::admin) {
        return Role::admin;
    }
    const bool reads = head.request.method == "GET" || head.request.method == "HEAD";
    return reads ? Role::read : Role::submit;
}

http::Response refused(std::string path, unsigned status, std::string code, std::string detail,
                       http::Headers headers = {}) {
    api::Problem problem;
    problem.status = status;
    problem.code = std::move(code);
    problem.detail = std::move(detail);
    problem.instance = std::move(path);
    return http::to_response(problem, std::move(headers));
}

http::Response invalid_key(std::string path) {
    return refused(std::move(path), 401, "invalid_key", "this service does not have the key, or it was revoked",
                   {{"WWW-Authenticate", std::string(kChallenge) + ", error=\"invalid_token\""}});
}

class KeyAuthenticator final : public http::Authenticator {
  public:
    KeyAuthenticator(std::shared_ptr<KeyRing> keys, AuthenticatorOptions options)
        : keys_(std::move(keys)), options_(options) {}

    http::Authentication judge(const http::RequestHead& head) override {
        http::Authentication verdict;
        if (is_open(head) || !keys_->protects()) {
            return verdict;
        }
        const auto secret = bearer_of(head.request);
        if (!secret) {
            const bool given = head.request.header("authorization").has_value();
            verdict.refusal = refused(head.request.path, 401, given ? "invalid_key" : "missing_key",
                                      "this service needs a key: Authorization: Bearer KEY (distilld keys add "
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
                                          to_string(verdict.caller->role) + ", but this needs " + to_string(needed));
        }
        return verdict;
    }

    std::optional<http::Response> revocation(const http::Caller& caller) override {
        return keys_->holds(caller) ? std::nullopt : std::optional(invalid_key({}));
    }

  private:
    [[nodiscard]] bool is_open(const http::RequestHead& head) const {
        return head.open || (options_.metrics_open && head.route != nullptr && head.route->pattern == "/metrics");
    }

    std::shared_ptr<KeyRing> keys_;
    AuthenticatorOptions options_;
};

}  // namespace

std::shared_ptr<http::Authenticator> make_key_authenticator(std::shared_ptr<KeyRing> keys,
                                                            AuthenticatorOptions options) {
    return std::make_shared<KeyAuthenticator>(std::move(keys), options);
}

}  // namespace distilld
