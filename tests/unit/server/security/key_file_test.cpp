#include "server/security/key_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using http::Role;
using ::testing::HasSubstr;
using ::testing::Not;

std::string content(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

TEST(KeyFile, F11APipeInPlaceOfTheKeysIsRefusedAndNotWaitedFor) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    ASSERT_EQ(::mkfifo((folder.path() / "keys.json").c_str(), 0600), 0);
    EXPECT_THAT(file.read().error().message, HasSubstr("keys.json: is not a regular file"));
    EXPECT_THAT(file.add("alice", Role::submit).error().message, HasSubstr("keys.json: is not a regular file"));
    std::filesystem::remove(folder.path() / "keys.lock");
    ASSERT_EQ(::mkfifo((folder.path() / "keys.lock").c_str(), 0600), 0);
    EXPECT_THAT(file.add("alice", Role::submit).error().message, HasSubstr("keys.lock: is not a regular file"));
}

TEST(ApiKey, IsRandomAndKnownByItsHash) {
    std::set<std::string> secrets;
    std::set<std::string> ids;
    for (int i = 0; i < 100; ++i) {
        const NewApiKey made = make_api_key("alice", Role::submit);
        EXPECT_EQ(made.secret.size(), 46U);  // "dk_" and 256 bits, 6 a sign
        EXPECT_THAT(made.secret, ::testing::MatchesRegex("dk_[A-Za-z0-9_-]+"));
        EXPECT_EQ(made.key.sha256, hash_of_secret(made.secret));
        secrets.insert(made.secret);
        ids.insert(made.key.id);
    }
    EXPECT_EQ(secrets.size(), 100U);
    EXPECT_EQ(ids.size(), 100U);
    EXPECT_EQ(hash_of_secret("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_TRUE(same_hash("abc", "abc"));
    EXPECT_FALSE(same_hash("abc", "abd"));
    EXPECT_FALSE(same_hash("abc", "ab"));
}

TEST(ApiKey, HasANameOfLettersAndDigits) {
    for (const char* good : {"a", "alice", "ci-2.main_x", "0"}) {
        EXPECT_TRUE(is_key_name(good)) << good;
    }
    for (const std::string bad : {"", "-a", ".a", "a b", "a\n", "ä", "a/b", "a:b"}) {
        EXPECT_FALSE(is_key_name(bad)) << bad;
    }
    EXPECT_TRUE(is_key_name(std::string(64, 'a')));
    EXPECT_FALSE(is_key_name(std::string(65, 'a')));
}

TEST(KeyFile, KeepsHashesForItsOwnerAlone) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path() / "new" / "data");
    EXPECT_TRUE(file.read().value().empty());
    const auto alice = file.add("alice", Role::admin).value();
    const auto bob = file.add("bob", Role::read).value();
    const auto keys = file.read().value();
    ASSERT_EQ(keys.size(), 2U);
    EXPECT_EQ(keys[0].name, "alice");
    EXPECT_EQ(keys[0].role, Role::admin);
    EXPECT_EQ(keys[0].id, alice.key.id);
    EXPECT_EQ(keys[0].sha256, hash_of_secret(alice.secret));
    EXPECT_EQ(keys[0].last_used, "");
    EXPECT_NE(keys[0].created_at, "");
    EXPECT_EQ(keys[1].sha256, hash_of_secret(bob.secret));
    struct stat there{};
    ASSERT_EQ(::stat(file.path().c_str(), &there), 0);
    EXPECT_EQ(there.st_mode & 0777U, 0600U);
    EXPECT_THAT(content(file.path()), Not(HasSubstr(alice.secret.substr(3))));
}

TEST(KeyFile, RefusesNamesThatAreTakenOrNone) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    ASSERT_TRUE(file.add("alice", Role::read).has_value());
    const auto twice = file.add("alice", Role::admin);
    ASSERT_FALSE(twice.has_value());
    EXPECT_EQ(twice.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(twice.error().message, HasSubstr("there is a key 'alice' already"));
    const auto reserved = file.add(kAdminKeyName, Role::admin);
    ASSERT_FALSE(reserved.has_value());
    EXPECT_THAT(reserved.error().message, HasSubstr("is the name of the key that DISTILLD_ADMIN_KEY holds"));
    EXPECT_FALSE(file.add("no name", Role::read).has_value());
    EXPECT_EQ(file.read().value().size(), 1U);
}

TEST(KeyFile, RevokesAndNotesUse) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    EXPECT_THAT(file.revoke("alice").error().message, HasSubstr("there is no key 'alice'"));
    const auto alice = file.add("alice", Role::read).value();
    ASSERT_TRUE(file.add("bob", Role::read).has_value());
    ASSERT_TRUE(file.note_use({{alice.key.id, "2026-02-03T04:05:06.000Z"}, {"key-gone", "x"}}).has_value());
    EXPECT_EQ(file.read().value().at(0).last_used, "2026-02-03T04:05:06.000Z");
    ASSERT_TRUE(file.note_use({{alice.key.id, "2026-01-01T00:00:00.000Z"}}).has_value());
    EXPECT_EQ(file.read().value().at(0).last_used, "2026-02-03T04:05:06.000Z") << "never back";
    ASSERT_TRUE(file.revoke("alice").has_value());
    ASSERT_EQ(file.read().value().size(), 1U);
    EXPECT_EQ(file.read().value().at(0).name, "bob");
    EXPECT_FALSE(file.revoke("alice").has_value());
}

TEST(KeyFile, LosesNoKeyOfSeveralThatAreMadeAtOnce) {
    const test::TemporaryFolder folder;
    std::vector<std::thread> makers;
    for (int i = 0; i < 8; ++i) {
        makers.emplace_back([&folder, i] {
            const KeyFile file(folder.path());
            EXPECT_TRUE(file.add("key" + std::to_string(i), Role::read).has_value());
        });
    }
    for (auto& maker : makers) {
        maker.join();
    }
    EXPECT_EQ(KeyFile(folder.path()).read().value().size(), 8U);
}

TEST(KeyFile, SaysWhatIsWrongWithIt) {
    const test::TemporaryFolder folder;
    const KeyFile file(folder.path());
    const std::string hash(64, 'a');
    const auto key = [&hash](const std::string& name, const std::string& role) {
        return R"({"id":"key-1","name":")" + name + R"(","role":")" + role + R"(","sha256":")" + hash + R"("})";
    };
    const std::vector<std::pair<std::string, std::string>> damaged{
        {"{", "is not JSON"},
        {"[]", "/keys: expected a list of keys"},
        {R"({"keys":{}})", "/keys: expected a list of keys"},
        {R"({"keys":[1]})", "/keys/0: is not an object"},
        {R"({"keys":[{}]})", "/keys/0/id: is missing"},
        {R"({"keys":[)" + key("a", "root") + "]}", "/keys/0/role: is 'root'"},
        {R"({"keys":[)" + key("a b", "read") + "]}", "/keys/0/name: is not a name"},
        {R"({"keys":[)" + key("a", "read") + "," + key("a", "read") + "]}", "two keys are called 'a'"},
        {R"({"keys":[)" + key("a", "read") + "," + key("b", "read") + "]}", "two keys have the id 'key-1'"},
        {R"({"keys":[{"id":"","name":"a","role":"read","sha256":"x"}]})", "/keys/0/id: is empty"},
        {R"({"keys":[{"id":"k","name":"a","role":"read","sha256":"x"}]})", "/keys/0/sha256: is not a SHA-256"},
    };
    for (const auto& [text, complaint] : damaged) {
        std::ofstream(file.path(), std::ios::trunc) << text;
        const auto read = file.read();
        ASSERT_FALSE(read.has_value()) << text;
        EXPECT_THAT(read.error().message, HasSubstr(complaint));
        EXPECT_THAT(read.error().message, HasSubstr(file.path().string()));
        EXPECT_FALSE(file.add("new", Role::read).has_value()) << "a damaged file is not written over";
        EXPECT_EQ(content(file.path()), text);
    }
}

}  // namespace
}  // namespace distilld
