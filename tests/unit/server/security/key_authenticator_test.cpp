#include "server/security/key_authenticator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using http::Right;
using http::Role;
using ::testing::HasSubstr;

class Door : public ::testing::Test {
  protected:
    unsigned judge(const std::string& method, const std::string& authorization, Right right = Right::by_method,
                   const std::string& pattern = "/v1/jobs") {
        http::Request request;
        request.method = method;
        request.path = pattern;
        if (!authorization.empty()) {
            request.headers = {{"Authorization", authorization}};
        }
        http::Route route;
        route.method = method;
        route.pattern = pattern;
        route.right = right;
        verdict_ = authenticator_->judge({request, "", &route, false, right == Right::nothing});
        return verdict_.refusal ? verdict_.refusal->status : 200;
    }
    std::string bearer(const std::string& name, Role role) { return "Bearer " + file_.add(name, role).value().secret; }
    void open(AuthenticatorOptions options = {}) {
        authenticator_ = make_key_authenticator(open_key_ring(file_).value(), options);
    }

    test::TemporaryFolder folder_;
    KeyFile file_{folder_.path()};
    std::shared_ptr<http::Authenticator> authenticator_;
    http::Authentication verdict_;
};

TEST_F(Door, IsOpenWhereThereAreNoKeys) {
    open();
    EXPECT_EQ(judge("POST", ""), 200U);
    EXPECT_FALSE(verdict_.caller.has_value());
}

TEST_F(Door, WantsAKeyThatIsKnown) {
    const auto good = bearer("alice", Role::admin);
    open();
    EXPECT_EQ(judge("GET", ""), 401U);
    EXPECT_EQ(verdict_.refusal->headers.at(0).first, "WWW-Authenticate");
    EXPECT_EQ(verdict_.refusal->headers.at(0).second, "Bearer realm=\"distilld\"");
    EXPECT_THAT(verdict_.refusal->body, HasSubstr("missing_key"));
    EXPECT_EQ(judge("GET", "Bearer dk_wrong"), 401U);
    EXPECT_THAT(verdict_.refusal->headers.at(0).second, HasSubstr("error=\"invalid_token\""));
    EXPECT_THAT(verdict_.refusal->body, ::testing::Not(HasSubstr("dk_wrong")));
    for (const std::string& odd : {std::string("Bearer"), std::string("Bearer "),
                                   std::string("Basic ") + good.substr(7), good.substr(7), std::string("bearer")}) {
        EXPECT_EQ(judge("GET", odd), 401U) << odd;
    }
    EXPECT_EQ(judge("GET", good), 200U);
    ASSERT_TRUE(verdict_.caller.has_value());
    EXPECT_EQ(verdict_.caller->name, "alice");
    EXPECT_EQ(judge("GET", "bEARER  " + good.substr(7)), 200U);
}

TEST_F(Door, F12SaysWhenAKeyIsNoLongerOne) {
    const auto good = bearer("alice", Role::submit);
    open();
    ASSERT_EQ(judge("GET", good), 200U);
    auto caller = verdict_.caller.value();
    EXPECT_FALSE(authenticator_->revocation(caller).has_value());
    caller.id = "key-another";
    const auto refusal = authenticator_->revocation(caller);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->status, 401U);
    EXPECT_THAT(refusal->body, HasSubstr("invalid_key"));
}

TEST_F(Door, TakesOneKeyARequest) {
    const auto good = bearer("alice", Role::admin);
    open();
    http::Request request;
    request.method = "GET";
    request.headers = {{"Authorization", good}, {"authorization", good}};
    EXPECT_EQ(authenticator_->judge({request, "", nullptr, false}).refusal.value().status, 401U);
}

TEST_F(Door, LetsRolesDoWhatTheyMay) {
    const auto read = bearer("r", Role::read);
    const auto submit = bearer("s", Role::submit);
    const auto admin = bearer("a", Role::admin);
    open();
    for (const auto& key : {read, submit, admin}) {
        EXPECT_EQ(judge("GET", key), 200U);
        EXPECT_EQ(judge("HEAD", key), 200U);
    }
    for (const auto* method : {"POST", "DELETE", "PATCH", "PUT", "OTHER"}) {
        EXPECT_EQ(judge(method, read), 403U) << method;
        EXPECT_THAT(verdict_.refusal->body, HasSubstr("forbidden"));
        EXPECT_EQ(judge(method, submit), 200U) << method;
        EXPECT_EQ(judge(method, admin), 200U) << method;
    }
    EXPECT_EQ(judge("GET", submit, Right::admin), 403U);
    EXPECT_EQ(judge("GET", admin, Right::admin), 200U);
}

TEST_F(Door, ProbesNeedNoKeyAndMetricsNoneWhenSaidSo) {
    static_cast<void>(bearer("alice", Role::admin));
    open();
    EXPECT_EQ(judge("GET", "", Right::nothing, "/readyz"), 200U);
    EXPECT_EQ(judge("GET", "", Right::by_method, "/metrics"), 401U);
    open({.metrics_open = true});
    EXPECT_EQ(judge("GET", "", Right::by_method, "/metrics"), 200U);
    EXPECT_EQ(judge("GET", ""), 401U);
}

}  // namespace
}  // namespace distilld
