#include "server/webhooks/webhook_signature.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace distilld::webhooks {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of the tests of the Standard Webhooks libraries.
constexpr const char* kSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
constexpr const char* kSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

TEST(WebhookSignature, IsThatOfTheStandard) {
    const auto secret = parse_webhook_secret(kSecret).value();
    const auto sign = [](const std::vector<std::string>& secrets) {
        return webhook_signature(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, R"({"test": 2432232314})");
    };
    EXPECT_EQ(sign({secret}), kSignature);
    EXPECT_EQ(sign({secret, secret}), std::string(kSignature) + " " + kSignature);
}

TEST(WebhookSignature, RefusesWhatIsNoSecret) {
    for (const auto* text : {"", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                             "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "whsec_MfKQ9r8G?YqrTwjUPD8ILPZIo2LaLaSw"}) {
        EXPECT_FALSE(parse_webhook_secret(text)) << text;
    }
    EXPECT_FALSE(parse_webhook_secret("whsec_" + std::string(88, 'A')));
    EXPECT_EQ(parse_webhook_secret("whsec_" + std::string(84, 'A')).value().size(), 63U);
}

TEST(WebhookSignature, ReadsAFileOfSecrets) {
    const test::TemporaryFolder folder;
    const auto file = folder / "secret";
    std::ofstream(file) << kSecret << "\r\n\n" << kSecret;
    EXPECT_EQ(read_webhook_secrets(file).value().size(), 2U);
    std::ofstream(file) << kSecret << "\nwhsec_nonsense\n";
    const auto refused = read_webhook_secrets(file);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("secret:2: "));
    EXPECT_THAT(refused.error().message, Not(HasSubstr("nonsense")));
    std::ofstream(file) << "";
    EXPECT_FALSE(read_webhook_secrets(file));
    EXPECT_FALSE(read_webhook_secrets(folder / "nothing"));
}

}  // namespace
}  // namespace distilld::webhooks
