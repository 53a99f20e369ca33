#include "server/security/token_authenticator.hpp"

#include <utility>

#include "api/problem.hpp"
#include "server/security/api_key.hpp"
#include "server/security/bearer.hpp"

namespace distilld {
namespace {

constexpr std::size_t kMaxTokenBytes = 512;

http::Response token_refusal(unsigned status, std::string code, std::string detail, http::Headers headers) {
    api::Problem problem;
    problem.status = status;
    problem.code = std::move(code);
    problem.detail = std::move(detail);
    return http::to_response(std::move(problem), std::move(headers));
}

class TokenAuthenticator final : public http::Authenticator {
  public:
    TokenAuthenticator(std::string name, std::string unknown_code, TokenLookup lookup)
        : name_(std::move(name)), unknown_code_(std::move(unknown_code)), lookup_(std::move(lookup)) {}

    http::Authentication judge(const http::RequestHead& head) override {
        const auto token = bearer_of(head.request);
        const bool plausible = token && token->size() <= kMaxTokenBytes;
        const std::string hash = plausible ? hash_of_secret(*token) : std::string();
        http::Authentication verdict;
        switch (plausible ? lookup_(hash) : TokenStanding::unknown) {
            case TokenStanding::known:
                verdict.caller = http::Caller{name_, http::Role::read, hash};
                break;
            case TokenStanding::unknown:
                verdict.refusal =
                    token_refusal(401, unknown_code_, "this path needs a token that is in use",
                                  {{"WWW-Authenticate", "Bearer realm=\"distilld\", error=\"" + unknown_code_ + "\""}});
                break;
            case TokenStanding::not_yet:
                verdict.refusal = token_refusal(503, "starting", "the service starts", {{"Retry-After", "1"}});
                break;
        }
        return verdict;
    }

    /// A connection of a token that is no longer in use is ended by whoever speaks over it.
    std::optional<http::Response> revocation(const http::Caller& /*caller*/) override { return std::nullopt; }

  private:
    std::string name_;
    std::string unknown_code_;
    TokenLookup lookup_;
};

}  // namespace

std::shared_ptr<http::Authenticator> make_token_authenticator(std::string name, std::string unknown_code,
                                                              TokenLookup lookup) {
    return std::make_shared<TokenAuthenticator>(std::move(name), std::move(unknown_code), std::move(lookup));
}

}  // namespace distilld
