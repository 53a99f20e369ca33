#include "server/webhooks/webhook_outbox.hpp"

#include "server/support/sqlite.hpp"

namespace distilld::webhooks {
namespace {

// One event per receiver, written together with the state that it reports, so a stop of the service cannot separate
// them. The body is set before the first attempt and then stays the same.
constexpr const char* kTables = R"(
CREATE TABLE IF NOT EXISTS webhook_receivers (
    url TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS webhook_events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,
    job_id TEXT NOT NULL,
    type TEXT NOT NULL,
    created_at TEXT NOT NULL,
    body TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt REAL NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS webhook_events_by_time ON webhook_events (url, next_attempt);
CREATE TRIGGER IF NOT EXISTS webhook_event_of_an_end AFTER UPDATE OF state ON jobs
WHEN NEW.state IN ('succeeded', 'failed', 'cancelled') AND OLD.state <> NEW.state
BEGIN
    INSERT INTO webhook_events (id, url, job_id, type, created_at)
    SELECT 'evt_' || lower(hex(randomblob(12))), url, NEW.id, 'job.' || NEW.state, NEW.finished_at
    FROM webhook_receivers;
END;
)";

class SqliteWebhookOutbox final : public WebhookOutbox {
  public:
    explicit SqliteWebhookOutbox(const std::filesystem::path& database) : database_(database, kTables) {
        database_.execute("PRAGMA synchronous = FULL");
    }

    void set_receivers(const std::vector<std::string>& urls) override {
        sqlite::Transaction transaction(database_);
        database_.execute("DELETE FROM webhook_receivers");
        sqlite::Statement insert(database_, "INSERT OR IGNORE INTO webhook_receivers (url) VALUES (?1)");
        for (const auto& url : urls) {
            insert.run(url);
        }
        database_.execute("DELETE FROM webhook_events WHERE url NOT IN (SELECT url FROM webhook_receivers)");
        transaction.commit();
    }

    std::optional<WebhookEvent> due(const std::string& url, double now) override {
        const auto guard = due_.query(url, now);
        if (!due_.step()) {
            return std::nullopt;
        }
        WebhookEvent event;
        event.number = due_.integer(0);
        event.id = due_.text(1);
        event.job_id = due_.text(2);
        event.type = due_.text(3);
        event.created_at = due_.text(4);
        event.body = due_.text(5);
        event.attempts = static_cast<std::uint32_t>(due_.integer(6));
        return event;
    }

    void set_body(std::int64_t number, const std::string& body) override { body_.run(number, body); }

    void try_again(std::int64_t number, std::uint32_t attempts, double at) override {
        again_.run(number, attempts, at);
    }

    void remove(std::int64_t number) override { remove_.run(number); }

  private:
    sqlite::Database database_;  // before the statements, which are destroyed first
    sqlite::Statement due_{database_,
                           "SELECT number, id, job_id, type, created_at, body, attempts FROM webhook_events "
                           "WHERE url = ?1 AND next_attempt <= ?2 ORDER BY next_attempt, number LIMIT 1"};
    sqlite::Statement body_{database_, "UPDATE webhook_events SET body = ?2 WHERE number = ?1"};
    sqlite::Statement again_{database_, "UPDATE webhook_events SET attempts = ?2, next_attempt = ?3 WHERE number = ?1"};
    sqlite::Statement remove_{database_, "DELETE FROM webhook_events WHERE number = ?1"};
};

}  // namespace

Result<std::unique_ptr<WebhookOutbox>> open_webhook_outbox(const std::filesystem::path& database) {
    try {
        return std::unique_ptr<WebhookOutbox>(std::make_unique<SqliteWebhookOutbox>(database));
    } catch (const ErrorException& error) {
        return error.error();
    }
}

}  // namespace distilld::webhooks
