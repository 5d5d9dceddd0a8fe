"""The words of tinyworld: one row for each word, with a column for each language.

To add a word, add a row. ``english.py``, ``french.py`` and ``german.py`` compute regular forms (``read_noun``,
``read_adjective``, ``read_verb``). Irregular forms are in the row.
"""

# ruff: noqa: E501  (one row for each word, of any length)

from __future__ import annotations

# English [plural] | French gender [plural] | German gender plural [weak] | kinds | where: en fr de | to: fr de
# A dash is a plural that is not used. Every noun is also a kind, so other rows can select a single noun, as in "bird".
# Kinds: "own" marks places that can have possessives; "one" nouns are used in the singular only. Verbs and adjectives
# select nouns by the other kinds.
# "weak" German nouns have the plural form in every case except the nominative (der Junge, den Jungen).
NOUNS = """
man men         | homme m           | Mann m Männer               | person adult
woman women     | femme f           | Frau f Frauen               | person adult
boy             | garçon m          | Junge m Jungen weak         | person
girl            | fille f           | Mädchen n Mädchen           | person
child children  | enfant m          | Kind n Kinder               | person
king            | roi m             | König m Könige              | person adult
queen           | reine f           | Königin f Königinnen        | person adult
prince          | prince m          | Prinz m Prinzen weak        | person adult
princess        | princesse f       | Prinzessin f Prinzessinnen  | person adult
witch           | sorcière f        | Hexe f Hexen                | person adult
giant           | géant m           | Riese m Riesen weak         | person adult
farmer          | fermier m         | Bauer m Bauern weak         | person adult job
baker           | boulanger m       | Bäcker m Bäcker             | person adult job
doctor          | médecin m         | Arzt m Ärzte                | person adult job
teacher         | professeur m      | Lehrer m Lehrer             | person adult job
painter         | peintre m         | Maler m Maler               | person adult job
mother          | mère f            | Mutter f Mütter             | family one
father          | père m            | Vater m Väter               | family male one
brother         | frère m           | Bruder m Brüder             | family male
sister          | sœur f            | Schwester f Schwestern      | family
aunt            | tante f           | Tante f Tanten              | family
uncle           | oncle m           | Onkel m Onkel               | family male

cat             | chat m            | Katze f Katzen              | animal pet
dog             | chien m           | Hund m Hunde                | animal pet
horse           | cheval m chevaux  | Pferd n Pferde              | animal pet
cow             | vache f           | Kuh f Kühe                  | animal pet
rabbit          | lapin m           | Kaninchen n Kaninchen       | animal pet
mouse mice      | souris f          | Maus f Mäuse                | animal
fox             | renard m          | Fuchs m Füchse              | animal
bear            | ours m            | Bär m Bären weak            | animal
wolf wolves     | loup m            | Wolf m Wölfe                | animal
lion            | lion m            | Löwe m Löwen weak           | animal
elephant        | éléphant m        | Elefant m Elefanten weak    | animal
hedgehog        | hérisson m        | Igel m Igel                 | animal
squirrel        | écureuil m        | Eichhörnchen n Eichhörnchen | animal
frog            | grenouille f      | Frosch m Frösche            | animal
monkey          | singe m           | Affe m Affen weak           | animal
bird            | oiseau m          | Vogel m Vögel               | animal flyer
owl             | hibou m hiboux    | Eule f Eulen                | animal flyer
duck            | canard m          | Ente f Enten                | animal flyer pet
bee             | abeille f         | Biene f Bienen              | animal flyer
dragon          | dragon m          | Drache m Drachen weak       | animal flyer

apple           | pomme f           | Apfel m Äpfel               | food fruit
pear            | poire f           | Birne f Birnen              | food fruit
orange          | orange f          | Orange f Orangen            | food fruit
cherry          | cerise f          | Kirsche f Kirschen          | food fruit
strawberry      | fraise f          | Erdbeere f Erdbeeren        | food fruit
tomato          | tomate f          | Tomate f Tomaten            | food fruit
egg             | œuf m             | Ei n Eier                   | food dish
cake            | gâteau m          | Kuchen m Kuchen             | food dish
biscuit         | biscuit m         | Keks m Kekse                | food dish
carrot          | carotte f         | Karotte f Karotten          | food
bread -         | pain m            | Brot n -                    | mass food dish
cheese -        | fromage m         | Käse m -                    | mass food
honey -         | miel m            | Honig m -                   | mass food
soup -          | soupe f           | Suppe f -                   | mass food dish
meat -          | viande f          | Fleisch n -                 | mass food dish
chocolate -     | chocolat m        | Schokolade f -              | mass food
water -         | eau f             | Wasser n -                  | mass drink
milk -          | lait m            | Milch f -                   | mass drink
tea -           | thé m             | Tee m -                     | mass drink
coffee -        | café m            | Kaffee m -                  | mass drink
juice -         | jus m             | Saft m -                    | mass drink

book            | livre m           | Buch n Bücher               | thing text gift
letter          | lettre f          | Brief m Briefe              | thing text
story           | histoire f        | Geschichte f Geschichten    | text
hat             | chapeau m         | Hut m Hüte                  | thing clothes
coat            | manteau m         | Mantel m Mäntel             | thing clothes
shoe            | chaussure f       | Schuh m Schuhe              | thing clothes
scarf scarves   | écharpe f         | Schal m Schals              | thing clothes gift
dress           | robe f            | Kleid n Kleider             | thing clothes gift
key             | clé f             | Schlüssel m Schlüssel       | thing part small
ring            | bague f           | Ring m Ringe                | thing gift small
umbrella        | parapluie m       | Regenschirm m Regenschirme  | thing
lamp            | lampe f           | Lampe f Lampen              | thing fragile repair
clock           | horloge f         | Uhr f Uhren                 | thing fragile repair
mirror          | miroir m          | Spiegel m Spiegel           | thing fragile
cup             | tasse f           | Tasse f Tassen              | thing fragile
plate           | assiette f        | Teller m Teller             | thing fragile
bottle          | bouteille f       | Flasche f Flaschen          | thing fragile opening
box             | boîte f           | Kiste f Kisten              | thing opening inside
basket          | panier m          | Korb m Körbe                | thing inside
ball            | ballon m          | Ball m Bälle                | thing gift small
doll            | poupée f          | Puppe f Puppen              | thing gift small
flower          | fleur f           | Blume f Blumen              | plant gift
tree            | arbre m           | Baum m Bäume                | plant beside
picture         | image f           | Bild n Bilder               | thing gift
table           | table f           | Tisch m Tische              | furniture surface
chair           | chaise f          | Stuhl m Stühle              | furniture surface repair
bed             | lit m             | Bett n Betten               | furniture surface
door            | porte f           | Tür f Türen                 | opening part beside
window          | fenêtre f         | Fenster n Fenster           | opening part
roof            | toit m            | Dach n Dächer               | part one
car             | voiture f         | Auto n Autos                | vehicle repair beside
bicycle         | vélo m            | Fahrrad n Fahrräder         | vehicle repair
boat            | bateau m          | Boot n Boote                | vehicle repair
piano           | piano m           | Klavier n Klaviere          | instrument
guitar          | guitare f         | Gitarre f Gitarren          | instrument
violin          | violon m          | Geige f Geigen              | instrument
drum            | tambour m         | Trommel f Trommeln          | instrument

garden          | jardin m          | Garten m Gärten             | place own              | in dans in | dans in
kitchen         | cuisine f         | Küche f Küchen              | place own              | in dans in | dans in
house           | maison f          | Haus n Häuser               | place own whole beside | in dans in |
forest          | forêt f           | Wald m Wälder               | place                  | in dans in | dans in
village         | village m         | Dorf n Dörfer               | place own              | in dans in | à in
park            | parc m            | Park m Parks                | place                  | in dans in | à in
castle          | château m         | Schloss n Schlösser         | place whole            | in dans in | à zu
church          | église f          | Kirche f Kirchen            | place whole beside     | in dans in | à zu
library         | bibliothèque f    | Bibliothek f Bibliotheken   | place                  | in dans in | à in
museum          | musée m           | Museum n Museen             | place                  | in dans in | à in
tower           | tour f            | Turm m Türme                | place                  | in dans in | à zu
school          | école f           | Schule f Schulen            | place own whole beside | at à in    | à zu
hotel           | hôtel m           | Hotel n Hotels              | place whole            | at à in    | à zu
market          | marché m          | Markt m Märkte              | place                  | at à auf   | à zu
station         | gare f            | Bahnhof m Bahnhöfe          | place                  | at à an    | à zu
farm            | ferme f           | Bauernhof m Bauernhöfe      | place own              | on à auf   | à zu
beach           | plage f           | Strand m Strände            | place                  | on sur an  | à zu
bridge          | pont m            | Brücke f Brücken            | place                  | on sur auf |
river           | rivière f         | Fluss m Flüsse              | waters                 | in dans in | à zu
lake            | lac m             | See m Seen                  | waters                 | in dans in | à zu
"""

# Names are the same in all languages. Other words agree with their gender.
NAMES = """
Anna f | Emma f | Nina f | Clara f | Tom m | Paul m | Leo m | Max m
"""

# English [-er -est, or "more"] | French [feminine] [before vowels] [before] | German [comparative superlative] | kinds
# "before": in French, before the noun (un petit chat); the others are after it (un chat noir).
# kinds: of the nouns that the adjective fits. "absolute" adjectives have no "very" or "too"; "attributive" adjectives
# are not used after "is".
ADJECTIVES = """
small smaller smallest    | petit before                   | klein                   | animal thing clothes furniture plant place waters vehicle part instrument
big bigger biggest        | grand before                   | groß größer größt       | animal thing furniture plant place waters vehicle opening roof
old older oldest          | vieux vieille vieil before     | alt älter ältest        | adult family animal thing furniture plant place vehicle part instrument
young younger youngest    | jeune before                   | jung jünger jüngst      | living
new                       | nouveau nouvelle nouvel before | neu                     | thing text furniture vehicle part instrument own attributive
beautiful                 | beau belle bel before          | schön                   | plant place waters clothes instrument flyer princess queen text
pretty                    | joli before                    | hübsch                  | gift clothes instrument plant pet
good                      | bon bonne before               | gut                     | food drink text job
long longer longest       | long longue before             | lang länger längst      | text clothes river
red                       | rouge                          | rot                     | clothes fruit plant vehicle opening fragile small absolute
blue                      | bleu                           | blau                    | clothes bird dragon vehicle opening fragile small waters absolute
green                     | vert                           | grün                    | clothes fruit vehicle opening fragile part small absolute
yellow                    | jaune                          | gelb                    | clothes fruit plant vehicle bird bee absolute
black                     | noir                           | schwarz                 | clothes animal vehicle furniture absolute
white                     | blanc blanche                  | weiß                    | clothes animal furniture opening fragile absolute
brown                     | brun                           | braun                   | animal clothes furniture inside absolute
cold colder coldest       | froid                          | kalt kälter kältest     | drink waters weather soup
hot                       | chaud                          | heiß                    | drink dish weather
fresh                     | frais fraîche                  | frisch                  | food drink
ripe                      | mûr                            | reif                    | fruit absolute
heavy heavier heaviest    | lourd                          | schwer                  | furniture inside instrument repair
light                     | léger                          | leicht                  | clothes small inside
empty                     | vide                           | leer                    | inside cup plate bottle place absolute
dark                      | sombre                         | dunkel dunkler dunkelst | place weather
dirty                     | sale                           | schmutzig               | clothes vehicle part fragile
strong stronger strongest | fort                           | stark stärker stärkst   | animal giant job male king
fast faster fastest       | rapide                         | schnell                 | animal vehicle
slow slower slowest       | lent                           | langsam                 | animal vehicle
happy happier happiest    | heureux                        | glücklich               | people
sad                       | triste                         | traurig                 | people
tired                     | fatigué                        | müde                    | living
sick                      | malade                         | krank                   | living
clever cleverer cleverest | intelligent                    | klug klüger klügst      | living
lazy lazier laziest       | paresseux                      | faul                    | living
brave braver bravest      | courageux                      | mutig                   | living
rich richer richest       | riche                          | reich                   | people
shy                       | timide                         | schüchtern              | living
kind                      | gentil gentille before         | freundlich              | people
funny funnier funniest    | drôle                          | lustig                  | people animal text
dangerous more            | dangereux                      | gefährlich              | animal waters bridge vehicle
famous more               | célèbre                        | berühmt                 | people place book story
interesting more          | intéressant                    | interessant             | text place people
"""

# English [third past] | French principal parts | German principal parts | frames | kinds of subjects > kinds of objects
#   French: infinitive; irregular verbs also je, il, nous, ils, participle [il-future]; "est" before the
#           participle: the past is formed with être (il est allé).
#   German: infinitive, er, participle; "ist" before the participle: the past is formed with sein; a plus
#           marks a separable prefix (an+kommen: er kommt an); "dat": the object is dative.
VERBS = """
sleep sleeps slept       | dormir dors dort dormons dorment dormi | schlafen schläft geschlafen        | activity skill             | living
sing sings sang          | chanter                  | singen singt gesungen              | activity company skill     | people
dance                    | danser                   | tanzen tanzt getanzt               | activity company skill     | people
play                     | jouer                    | spielen spielt gespielt            | activity company music skill | living
work                     | travailler               | arbeiten arbeitet gearbeitet       | activity company skill     | people
wait                     | attendre attends attend attendons attendent attendu | warten wartet gewartet             | activity                   | living
laugh                    | rire ris rit rions rient ri | lachen lacht gelacht               | intransitive company       | people
cry                      | pleurer                  | weinen weint geweint               | activity                   | people
swim swims swam          | nager                    | schwimmen schwimmt ist geschwommen | swimming skill             | living
fly flies flew           | voler                    | fliegen fliegt ist geflogen        | intransitive               | flyer
run runs ran             | courir cours court courons courent couru courra | rennen rennt ist gerannt           | intransitive activity      | living
travel travels travelled | voyager                  | reisen reist ist gereist           | intransitive company       | people
arrive                   | arriver - est            | an+kommen kommt ist angekommen     | activity                   | people
fall falls fell          | tomber - est             | hin+fallen fällt ist hingefallen   | activity                   | living
go goes went             | aller vais va allons vont est allé ira | gehen geht ist gegangen            | motion                     | living
come comes came          | venir viens vient venons viennent est venu viendra | kommen kommt ist gekommen          | motion                     | living
return                   | retourner - est          | zurück+kehren kehrt ist zurückgekehrt | motion                     | living

eat eats ate             | manger                   | essen isst gegessen                | transitive food            | people > food
drink drinks drank       | boire bois boit buvons boivent bu | trinken trinkt getrunken           | transitive food            | living > drink
prepare                  | préparer                 | zu+bereiten bereitet zubereitet    | transitive food            | people > dish
see sees saw             | voir vois voit voyons voient vu verra | sehen sieht gesehen                | transitive personal        | living > living place plant
find finds found         | trouver                  | finden findet gefunden             | transitive personal        | living > thing plant animal
look+for                 | chercher                 | suchen sucht gesucht               | transitive personal        | living > thing living
buy buys bought          | acheter                  | kaufen kauft gekauft               | transitive benefit         | people > clothes gift vehicle furniture instrument fruit dish
write writes wrote       | écrire écris écrit écrivons écrivent écrit | schreiben schreibt geschrieben     | transitive                 | people > text
carry                    | porter                   | tragen trägt getragen              | transitive                 | people > inside furniture key ball doll
wear wears wore          | porter                   | tragen trägt getragen              | transitive                 | people > clothes
draw draws drew          | dessiner                 | zeichnen zeichnet gezeichnet       | transitive benefit         | people > animal plant place
clean                    | nettoyer nettoie nettoie nettoyons nettoient nettoyé nettoiera | putzen putzt geputzt               | transitive                 | people > furniture opening vehicle mirror
open                     | ouvrir ouvre ouvre ouvrons ouvrent ouvert | öffnen öffnet geöffnet             | transitive                 | people > opening
close                    | fermer                   | schließen schließt geschlossen     | transitive                 | people > opening
repair                   | réparer                  | reparieren repariert repariert     | transitive benefit         | people > repair
break breaks broke       | casser                   | zerbrechen zerbricht zerbrochen    | transitive                 | living > fragile
lose loses lost          | perdre perds perd perdons perdent perdu | verlieren verliert verloren        | transitive                 | people > thing
take takes took          | prendre prends prend prenons prennent pris | nehmen nimmt genommen              | transitive                 | people > thing
hide hides hid           | cacher                   | verstecken versteckt versteckt     | transitive                 | living > thing
pick                     | cueillir cueille cueille cueillons cueillent cueilli cueillera | pflücken pflückt gepflückt         | transitive benefit         | people > fruit flower
visit                    | visiter                  | besuchen besucht besucht           | transitive                 | people > place
watch                    | regarder                 | beobachten beobachtet beobachtet   | transitive personal        | living > living
hear hears heard         | entendre entends entend entendons entendent entendu | hören hört gehört                  | transitive personal        | living > living
meet meets met           | rencontrer               | treffen trifft getroffen           | transitive personal        | people > people
help                     | aider                    | helfen hilft geholfen dat          | transitive personal        | people > living
follow                   | suivre suis suit suivons suivent suivi | folgen folgt ist gefolgt dat       | transitive personal        | living > living
thank                    | remercier                | danken dankt gedankt dat           | transitive personal        | people > people
feed feeds fed           | nourrir nourris nourrit nourrissons nourrissent nourri | füttern füttert gefüttert          | transitive                 | people > animal

give gives gave          | donner                   | geben gibt gegeben                 | giving                     | people > gift fruit dish
show shows showed        | montrer                  | zeigen zeigt gezeigt               | giving                     | people > gift text vehicle animal
bring brings brought     | apporter                 | bringen bringt gebracht            | giving                     | people > thing dish
send sends sent          | envoyer envoie envoie envoyons envoient envoyé enverra | schicken schickt geschickt         | giving                     | people > letter gift
sell sells sold          | vendre vends vend vendons vendent vendu | verkaufen verkauft verkauft        | transitive giving          | people > vehicle furniture instrument clothes

rain                     | pleuvoir - pleut - - plu pleuvra | regnen regnet geregnet             | weather                    |
snow                     | neiger                   | schneien schneit geschneit         | weather                    |
say says said            | dire dis dit disons disent dit | sagen sagt gesagt                  | claim                      | people
think thinks thought     | penser                   | denken denkt gedacht               | claim                      | people
know knows knew          | savoir sais sait savons savent su saura | wissen weiß gewusst                | claim                      | people
"""

# The verbs that templates and moods use by name. Their past is one word in all three languages (was, était, war).
# English: I you he we they, past | French: je tu il nous ils, imperfect, future | German: ich du er wir sie, past
HELPERS = """
be: am are is are are, was were was were were | être: suis es est sommes sont, étais, sera | sein: bin bist ist sind sind, war
have: have have has have have, had | avoir: ai as a avons ont, avais, aura | haben: habe hast hat haben haben, hatte
make: make make makes make make, made | faire: fais fais fait faisons font, faisais, fera | machen: mache machst macht machen machen, machte
can: can can can can can, could | pouvoir: peux peux peut pouvons peuvent, pouvais, pourra | können: kann kannst kann können können, konnte
must: must must must must must, had+to | devoir: dois dois doit devons doivent, devais, devra | müssen: muss musst muss müssen müssen, musste
want: want+to want+to wants+to want+to want+to, wanted+to | vouloir: veux veux veut voulons veulent, voulais, voudra | wollen: will willst will wollen wollen, wollte
like: like+to like+to likes+to like+to like+to, liked+to | aimer: aime aimes aime aimons aiment, aimais, aimera | gern: gern gern gern gern gern, gern
"""

# Prepositions of place: English | French | German + case | kinds of nouns
SPOTS = """
on          | sur      | auf+dat    | surface
under       | sous     | unter+dat  | surface tree
behind      | derrière | hinter+dat | beside
in_front_of | devant   | vor+dat    | beside
in          | dans     | in+dat     | inside
"""

# Words without inflection: English | French | German. Words with the same number are aligned (see phrases.py).
NUMBERS = """
two | deux | zwei
three | trois | drei
four | quatre | vier
five | cinq | fünf
six | six | sechs
seven | sept | sieben
eight | huit | acht
nine | neuf | neun
ten | dix | zehn
eleven | onze | elf
twelve | douze | zwölf
"""
FEELINGS = """
hungry  | faim | Hunger
thirsty | soif | Durst
afraid  | peur | Angst
"""
HABITS = """
always    | toujours | immer
often     | souvent  | oft
sometimes | parfois  | manchmal
"""
MANNERS = """
well  | bien     | gut
badly | mal      | schlecht
a lot | beaucoup | viel
"""
TIMES_PRESENT = """
now                 | maintenant         | jetzt
every:1 day:2       | chaque:1 jour:2    | jeden:1 Tag:2
every:1 morning:2   | chaque:1 matin:2   | jeden:1 Morgen:2
every:1 evening:2   | chaque:1 soir:2    | jeden:1 Abend:2
in:1 summer:2       | en:1 été:2         | im:1 Sommer:2
in:1 winter:2       | en:1 hiver:2       | im:1 Winter:2
"""
TIMES_PAST = """
yesterday           | hier                           | gestern
last:1 week:2       | la:3 semaine*:2 dernière:1     | letzte:1 Woche:2
last:1 year:2       | la:3 année*:2 dernière:1       | letztes:1 Jahr:2
last:1 night:2      | la:3 nuit*:2 dernière:1        | letzte:1 Nacht:2
"""
TIMES_FUTURE = """
tomorrow            | demain                         | morgen
soon                | bientôt                        | bald
next:1 week:2       | la:3 semaine*:2 prochaine:1    | nächste:1 Woche:2
next:1 year:2       | la:3 année*:2 prochaine:1      | nächstes:1 Jahr:2
"""

# subject other | subject object-before-the-verb | nominative accusative dative | person, gender
# Question words have no French form before the verb, because they are at the start of the sentence.
PRONOUNS = """
I me      | je me      | ich mich mir  | 0 m
you you   | tu te      | du dich dir   | 1 m
he him    | il le      | er ihn ihm    | 2 m
she her   | elle la    | sie sie ihr   | 2 f
we us     | nous nous  | wir uns uns   | 3 m
they them | ils les    | sie sie ihnen | 4 m
who who   | qui -      | wer wen wem   | 2 m
what what | que -      | was was -     | 2 m
"""

# Names for groups of kinds.
KINDS = {"people": "person family", "living": "person family animal"}
