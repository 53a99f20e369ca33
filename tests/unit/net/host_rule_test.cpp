#include "net/host_rule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace distilld {
namespace {

using ::testing::HasSubstr;

HostRule rule(const std::vector<std::string>& patterns) {
    return HostRule::make(patterns).value();
}

bool takes(const HostRule& rule, const std::string& host, std::uint16_t port = 80) {
    return !rule.refusal(host, port).has_value();
}

bool takes(const HostRule& rule, const std::string& host, const std::string& address) {
    return !rule.refusal(host, 80, address).has_value();
}

TEST(HostRule, RefusesLinkLocalAndMetadataHoweverTheyAreSpelt) {
    const HostRule none;
    for (const char* host :
         {"169.254.169.254", "169.254.0.1", "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376",
          "169.16689662", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "fe80::1", "fe80::1%eth0", "febf::1",
          "fd00:ec2::254", "100.100.100.200", "64:ff9b::a9fe:a9fe", "metadata.google.internal",
          "METADATA.google.internal.", "metadata", "instance-data"}) {
        EXPECT_FALSE(takes(none, host)) << host;
    }
    for (const char* host : {"127.0.0.1", "localhost", "10.1.2.3", "169.253.1.1", "169.255.1.1", "::1", "fec0::1",
                             "fd00::1", "teacher.example", "100.100.100.201", "8.8.8.8"}) {
        EXPECT_TRUE(takes(none, host)) << host;
    }
}

TEST(HostRule, F12AddressesThatHoldAnIpv4OneAreJudgedByIt) {
    const HostRule none;
    for (const char* host : {"168.63.129.16",
                             "::ffff:168.63.129.16",
                             "2822734096",
                             "64:ff9b::168.63.129.16",
                             "64:ff9b::169.254.1.1",
                             "64:ff9b::192.0.0.192",
                             "64:ff9b:1::169.254.169.254",
                             "64:ff9b:1:a9fe:a9:fe00::",
                             "64:ff9b:1:12a9:fe:a9fe::",
                             "64:ff9b:1:1234:a9:fea9:fe00::",
                             "::ffff:0:169.254.169.254",
                             "::ffff:0:168.63.129.16",
                             "::168.63.129.16",
                             "::169.254.169.254",
                             "2002:a83f:8110::1",
                             "2002:a9fe:a9fe::1",
                             "2001:0:a9fe:a9fe::1",
                             "2001:0:102:304:0:0:5601:5601",
                             "fd00:ec2::23",
                             "fd00:100::100:200",
                             "fd00:c1::a9fe:a9fe",
                             "fd00:42::42",
                             "fd00:a9fe:a9fe::1"}) {
        EXPECT_FALSE(takes(none, host)) << host;
        EXPECT_FALSE(takes(none, "teacher.example", std::string(host))) << host;
    }
    for (const char* host : {"168.63.129.17", "64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1", "::ffff:0:10.0.0.1",
                             "2002:a00:1::1", "2001:0:102:304::1", "2001:db8::a9fe:a9fe", "fd00:ec3::254"}) {
        EXPECT_TRUE(takes(none, host)) << host;
    }
    // A pattern is the address itself, not what it holds.
    EXPECT_FALSE(takes(rule({"169.254.169.254"}), "64:ff9b::169.254.169.254"));
    EXPECT_TRUE(takes(rule({"64:ff9b::169.254.169.254"}), "64:ff9b::169.254.169.254"));
    EXPECT_FALSE(takes(rule({"64:ff9b::/96"}), "64:ff9b::169.254.169.254"));
}

TEST(HostRule, JudgesWhereANameLeads) {
    const HostRule none;
    EXPECT_TRUE(takes(none, "teacher.example", "10.0.0.1"));
    EXPECT_FALSE(takes(none, "teacher.example", "169.254.169.254"));
    EXPECT_FALSE(takes(none, "teacher.example", "fe80::1"));
    // A name that is on the list may still be given any address.
    const HostRule named = rule({"teacher.example"});
    EXPECT_TRUE(takes(named, "teacher.example", "10.0.0.1"));
    EXPECT_FALSE(takes(named, "teacher.example", "169.254.169.254"));
}

TEST(HostRule, WithPatternsTakesNothingElse) {
    const HostRule listed = rule({"teacher.example", "*.gpu.example:8000", "10.0.0.0/8", "[fd12::]/16", "192.0.2.7:9"});
    EXPECT_TRUE(takes(listed, "teacher.example"));
    EXPECT_TRUE(takes(listed, "Teacher.Example."));
    EXPECT_TRUE(takes(listed, "a.gpu.example", 8000));
    EXPECT_TRUE(takes(listed, "a.b.gpu.example", 8000));
    EXPECT_TRUE(takes(listed, "10.200.0.1", 1));
    EXPECT_TRUE(takes(listed, "fd12:1::1"));
    EXPECT_TRUE(takes(listed, "192.0.2.7", 9));
    for (const char* host : {"11.0.0.1", "fd13::1", "127.0.0.1"}) {
        EXPECT_FALSE(takes(listed, host)) << host;
    }
    EXPECT_FALSE(takes(listed, "192.0.2.7", 10));
    // A name that no pattern names may yet lead into a range.
    EXPECT_TRUE(takes(listed, "other.example"));
    EXPECT_TRUE(takes(listed, "other.example", "10.0.0.9"));
    EXPECT_FALSE(takes(listed, "other.example", "11.0.0.9"));
    const HostRule names = rule({"*.gpu.example:8000"});
    EXPECT_FALSE(takes(names, "gpu.example", 8000));
    EXPECT_FALSE(takes(names, "a.gpu.example", 80));
    EXPECT_FALSE(takes(names, "evilgpu.example", 8000));
    EXPECT_FALSE(takes(names, "a.gpu.example.evil", 8000));
}

TEST(HostRule, APatternThatNamesADangerousPlaceOpensIt) {
    EXPECT_TRUE(takes(rule({"169.254.7.7"}), "169.254.7.7"));
    EXPECT_FALSE(takes(rule({"169.254.7.7"}), "169.254.169.254"));
    EXPECT_TRUE(takes(rule({"169.254.0.0/16"}), "169.254.169.254"));
    EXPECT_TRUE(takes(rule({"fe80::/10"}), "fe80::5"));
    EXPECT_TRUE(takes(rule({"metadata.google.internal"}), "metadata.google.internal"));
    for (const char* wide : {"0.0.0.0/0", "::/0"}) {
        EXPECT_FALSE(takes(rule({wide}), "169.254.169.254")) << wide;
        EXPECT_TRUE(takes(rule({wide}), "10.0.0.1")) << wide;
    }
}

TEST(HostRule, NamesAPatternThatIsNone) {
    for (const char* bad : {"http://host", "host:0", "host:70000", "host:", "a b", "[::1", "10.0.0.0/33", "10.0.0.0/x",
                            "*", "*.", "fd00::/129", "host/8", "ho*st"}) {
        const auto made = HostRule::make({bad});
        ASSERT_FALSE(made.has_value()) << bad;
        EXPECT_THAT(made.error().message, HasSubstr("'" + std::string(bad) + "'"));
    }
    EXPECT_TRUE(HostRule::parse("").value().patterns().empty());
    EXPECT_EQ(HostRule::parse("a,,b:1").value().patterns().size(), 2U);
}

}  // namespace
}  // namespace distilld
