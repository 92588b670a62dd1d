/* What programs ask when they connect, before anybody has asked them anything. */
#include "admin/admin_private.h"

void admin_hello_ping(struct session_entry *session, size_t count, const struct slice *arguments)
{
    if (count > 1) {
        admin_reply_text(session, arguments[1].data, arguments[1].length);
    } else {
        admin_reply_status(session, "PONG");
    }
}

/* redis-cli asks for it when it starts; an empty list is an answer to its liking. */
void admin_hello_command(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    admin_reply_bytes(session, "*0\r\n", 4);
}
