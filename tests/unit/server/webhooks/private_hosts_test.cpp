#include "server/webhooks/private_hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distilld::webhooks {
namespace {

using boost::asio::ip::make_address;
using ::testing::HasSubstr;

TEST(PrivateHosts, AreThoseInside) {
    for (const auto* inside : {"127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
                               "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1",
                               "::", "fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1"}) {
        EXPECT_TRUE(is_private(make_address(inside))) << inside;
    }
    for (const auto* outside :
         {"8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "169.253.0.1", "2606:4700::1111", "::ffff:8.8.8.8"}) {
        EXPECT_FALSE(is_private(make_address(outside))) << outside;
    }
}

TEST(PrivateHosts, F12AnAddressThatHoldsAnIpv4OneIsJudgedByIt) {
    for (const auto* inside :
         {"64:ff9b::10.0.0.1", "64:ff9b:1::169.254.169.254", "2002:7f00:1::1", "::ffff:0:192.168.1.1"}) {
        EXPECT_TRUE(is_private(make_address(inside))) << inside;
    }
    EXPECT_FALSE(is_private(make_address("64:ff9b::8.8.8.8")));
}

TEST(PrivateHosts, AreRefusedUnlessTheirNamesAreAllowed) {
    const auto lookup = public_lookup({"inside.example"}, [](const std::string& host) -> Result<HostAddresses> {
        if (host == "nowhere.example") {
            return io_error("unknown");
        }
        HostAddresses addresses{make_address("8.8.8.8")};
        if (host != "public.example") {
            addresses.push_back(make_address("169.254.169.254"));
        }
        return addresses;
    });
    for (const auto* taken : {"public.example", "inside.example", "localhost"}) {
        EXPECT_TRUE(lookup(taken)) << taken;
    }
    const auto refused = lookup("rebound.example");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("--webhook-private-host rebound.example"));
    EXPECT_FALSE(lookup("nowhere.example"));
}

}  // namespace
}  // namespace distilld::webhooks
