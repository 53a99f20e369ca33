#include "server/security/token_authenticator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/security/api_key.hpp"

namespace distilld {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TokenDoor : public ::testing::Test {
  protected:
    unsigned judge(const std::string& authorization) {
        http::Request request;
        request.method = "GET";
        request.headers = {{"Authorization", authorization}};
        verdict_ = door_->judge({request, "", nullptr, false, false});
        return verdict_.refusal ? verdict_.refusal->status : 200;
    }

    TokenStanding others_ = TokenStanding::unknown;
    std::shared_ptr<http::Authenticator> door_ = make_token_authenticator(
        "relay", "unknown_attempt",
        [this](const std::string& hash) { return hash == hash_of_secret("good") ? TokenStanding::known : others_; });
    http::Authentication verdict_;
};

TEST_F(TokenDoor, LetsInWhoHasAToken) {
    EXPECT_EQ(judge("Bearer good"), 200U);
    EXPECT_EQ(verdict_.caller->name, "relay");
    EXPECT_EQ(verdict_.caller->id, hash_of_secret("good"));
    EXPECT_EQ(verdict_.caller->role, http::Role::read);
    EXPECT_FALSE(door_->revocation(*verdict_.caller).has_value());
}

TEST_F(TokenDoor, RefusesOthers) {
    for (const std::string& wrong : {std::string(), std::string("Bearer "), std::string("Bearer goo"),
                                     std::string("Basic good"), "Bearer " + std::string(100'000, 'x')}) {
        EXPECT_EQ(judge(wrong), 401U);
        EXPECT_THAT(verdict_.refusal->body, HasSubstr("unknown_attempt"));
        EXPECT_FALSE(verdict_.caller.has_value());
    }
    EXPECT_EQ(judge("Bearer secret"), 401U);
    EXPECT_THAT(verdict_.refusal->body, Not(HasSubstr("secret")));
}

TEST_F(TokenDoor, CannotSayBeforeAllAreKnown) {
    others_ = TokenStanding::not_yet;
    EXPECT_EQ(judge("Bearer other"), 503U);
    EXPECT_THAT(verdict_.refusal->body, Not(HasSubstr("unknown_attempt")));
    EXPECT_EQ(judge("Bearer good"), 200U);
}

}  // namespace
}  // namespace distilld
