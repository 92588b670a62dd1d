# Exercises Redis.pm and Redis::Fast, which speak alike: HOST PORT MODULE. Prints "fine" at its end.
use strict;
use warnings;

my ($host, $port, $module) = @ARGV;
eval "require $module; 1" or die $@;

sub check {
    my ($condition, $what) = @_;
    die "failed: $what\n" unless $condition;
}

sub connect_to {
    return $module->new(server => "$host:$port", cnx_timeout => 10, read_timeout => 10, name => 'perl-client', @_);
}

my $redis = connect_to();
$redis->flushall;
check($redis->client_getname eq 'perl-client', 'name');
my $value = join('', map { chr } 0 .. 255) x 2000;
check($redis->set('k', $value) eq 'OK', 'set');
check($redis->get('k') eq $value, 'get');
check(!defined $redis->get('none'), 'nil');

my @seen;
for my $i (0 .. 499) {
    $redis->set("k$i", $i, sub { });
    $redis->get("k$i", sub { push @seen, $_[0] });
}
$redis->wait_all_responses;
check(join(',', @seen) eq join(',', 0 .. 499), 'pipeline');

$redis->multi;
$redis->set('m', 1);
$redis->incr('m');
my @results = $redis->exec;
check("@results" eq 'OK 2', 'multi');

my $other = connect_to();
$redis->watch('watched');
$other->set('watched', 'theirs');
$redis->multi;
$redis->set('watched', 'mine');
$redis->exec;
check($redis->get('watched') eq 'theirs', 'watch conflict');

$other->rpush('list', 'v');
my @popped = $redis->blpop('list', 5);
check("@popped" eq 'list v', 'blpop');

$other->select(2);
$other->set('k', 'in 2');
check($redis->get('k') eq $value, 'databases');

my @messages;
my $subscriber = connect_to();
my $callback = sub { my ($message, $topic) = @_; push @messages, "$topic=$message" };
$subscriber->subscribe('a', 'b', $callback);
$redis->publish('a', 'first');
$redis->publish('b', 'last');
for (1 .. 50) {
    last if @messages == 2;
    $subscriber->wait_for_messages(0.1);
}
check("@messages" eq 'a=first b=last', 'messages');
$subscriber->unsubscribe('a', 'b', $callback);
check($subscriber->ping eq 'PONG', 'after the subscription');

check(!eval { $redis->nonsense; 1 } && $@ =~ /unknown command/, 'an error');
$redis->quit;
print "fine\n";
