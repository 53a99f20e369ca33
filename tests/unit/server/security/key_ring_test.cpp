#include "server/security/key_ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using http::Role;
using ::testing::HasSubstr;

KeyRingOptions brisk() {
    KeyRingOptions options;
    options.look_interval = std::chrono::milliseconds(5);
    return options;
}

bool soon(const std::function<bool()>& condition) {
    for (int i = 0; i < 4000; ++i) {
        if (condition()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
}

TEST(KeyRing, KnowsTheKeysOfTheFileAndNoOthers) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    const auto alice = file.add("alice", Role::submit).value();
    const auto ring = open_key_ring(file).value();
    EXPECT_TRUE(ring->protects());
    const auto caller = ring->find(alice.secret);
    ASSERT_TRUE(caller.has_value());
    EXPECT_EQ(caller->name, "alice");
    EXPECT_EQ(caller->role, Role::submit);
    EXPECT_EQ(caller->id, alice.key.id);
    for (const std::string& wrong : {std::string(), std::string("dk_"), alice.secret + "x", alice.secret.substr(1),
                                     alice.key.sha256, std::string(100000, 'a')}) {
        EXPECT_FALSE(ring->find(wrong).has_value());
    }
}

TEST(KeyRing, TakesOverWhatChangesWhileTheServiceRuns) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    const auto ring = open_key_ring(file, brisk()).value();
    EXPECT_FALSE(ring->protects());
    const auto alice = file.add("alice", Role::admin).value();
    EXPECT_TRUE(soon([&] { return ring->protects(); }));
    EXPECT_TRUE(ring->find(alice.secret).has_value());
    ASSERT_TRUE(file.revoke("alice").has_value());
    EXPECT_TRUE(soon([&] { return !ring->find(alice.secret); }));
    EXPECT_TRUE(ring->protects()) << "the last key's end opens no door";
}

TEST(KeyRing, F12AKeyOfTheNameOfARevokedOneIsAnother) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    const auto first = file.add("alice", Role::submit).value();
    const auto ring = open_key_ring(file, brisk()).value();
    const auto before = ring->find(first.secret).value();
    EXPECT_TRUE(ring->holds(before));
    ASSERT_TRUE(file.revoke("alice").has_value());
    const auto second = file.add("alice", Role::submit).value();
    EXPECT_TRUE(soon([&] { return ring->find(second.secret).has_value(); }));
    EXPECT_FALSE(ring->holds(before));
    const auto now = ring->find(second.secret).value();
    EXPECT_TRUE(ring->holds(now));
    EXPECT_NE(now.id, before.id);
}

TEST(KeyRing, AFileThatIsLostOrBrokenOpensNoDoor) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    const auto alice = file.add("alice", Role::admin).value();
    const auto ring = open_key_ring(file, brisk()).value();
    std::ofstream(file.path(), std::ios::trunc) << "{";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(ring->find(alice.secret).has_value()) << "a broken file shuts nobody out";
    EXPECT_TRUE(ring->protects());
    std::filesystem::remove(file.path());
    EXPECT_TRUE(soon([&] { return !ring->find(alice.secret); }));
    EXPECT_TRUE(ring->protects());
}

TEST(KeyRing, ABrokenFileIsAnErrorAtTheStart) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    std::ofstream(file.path()) << "{";
    const auto ring = open_key_ring(file);
    ASSERT_FALSE(ring.has_value());
    EXPECT_THAT(ring.error().message, HasSubstr("keys.json: is not JSON"));
}

TEST(KeyRing, TakesAnAdminsKeyOfTheEnvironment) {
    const test::TemporaryFolder folder;
    KeyRingOptions options = brisk();
    options.admin_secret = std::string(32, 's');
    const auto ring = open_key_ring(KeyFile(folder.path()), options).value();
    EXPECT_TRUE(ring->protects());
    EXPECT_EQ(ring->find(std::string(32, 's')).value().role, Role::admin);
    ASSERT_TRUE(KeyFile(folder.path()).add("bob", Role::read).has_value());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(ring->find(std::string(32, 's')).has_value()) << "it outlives changes of the file";
    for (const std::string& weak : {std::string(31, 's'), std::string(600, 's'), std::string(32, ' ')}) {
        options.admin_secret = weak;
        const auto refused = open_key_ring(KeyFile(folder.path()), options);
        ASSERT_FALSE(refused.has_value());
        EXPECT_THAT(refused.error().message, HasSubstr(kAdminKeyVariable));
        EXPECT_THAT(refused.error().message, ::testing::Not(HasSubstr(weak)));
    }
}

TEST(KeyRing, NotesWhenKeysWereUsed) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    const auto alice = file.add("alice", Role::admin).value();
    ASSERT_TRUE(file.add("bob", Role::admin).has_value());
    KeyRingOptions options = brisk();
    options.note_interval = std::chrono::milliseconds(10);
    {
        const auto ring = open_key_ring(file, options).value();
        static_cast<void>(ring->find(alice.secret));
        EXPECT_TRUE(soon([&] { return !file.read().value().at(0).last_used.empty(); }));
        EXPECT_EQ(file.read().value().at(1).last_used, "");
        EXPECT_TRUE(ring->find(alice.secret).has_value());
    }
    const auto before = file.read().value().at(0).last_used;
    options.note_interval = std::chrono::hours(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    static_cast<void>(open_key_ring(file, options).value()->find(alice.secret));
    EXPECT_GT(file.read().value().at(0).last_used, before) << "the end of the service writes it as well";
}

}  // namespace
}  // namespace distilld
